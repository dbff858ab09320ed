//! One conversation of a check: its admissions, its stream, its model's lane, its desk at the Orchestrator.

use super::Stage;
use crate::model::{Lane, RecordedRequest};
use crate::suite::case::{Halt, failed};
use crate::suite::harness::{Answer, PROVIDER};
use crate::suite::orchestrator::Desk;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A conversation.
#[derive(Debug)]
pub struct Seat<'a> {
    stage: &'a Stage,
    /// The Agent's name.
    pub agent: String,
    /// The conversation's.
    pub iid: String,
    /// What stands behind the provider's slash.
    pub model: String,
    /// What its model says, and is asked.
    pub lane: Arc<Lane>,
    /// Its surface.
    pub desk: Arc<Desk>,
    /// Submissions whose settlement was not seen yet.
    open: AtomicUsize,
}

/// A surface with these events on the Menu, those allowed, picks not keyed.
pub fn surface(iid: &str, menu: &[&str], allowed: &[&str]) -> Value {
    let item = |name: &&str| {
        json!({"name": name, "description": format!("Pick {name}."), "semantics": "ack",
               "input": {"type": "object", "properties": {"note": {"type": "string"}}}})
    };
    let items: Vec<Value> = menu.iter().map(item).collect();
    json!({"instanceId": iid, "runId": "conformance", "menu": items, "allowed": allowed})
}

/// A text as one path segment.
pub fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

impl<'a> Seat<'a> {
    pub(super) fn new(stage: &'a Stage, agent: &str, iid: &str, model: &str, lane: Arc<Lane>, desk: Arc<Desk>) -> Self {
        Self {
            stage,
            agent: agent.to_owned(),
            iid: iid.to_owned(),
            model: model.to_owned(),
            lane,
            desk,
            open: AtomicUsize::new(0),
        }
    }

    /// The conversation's path.
    pub fn path(&self) -> String {
        format!("/agents/{}/{}", encoded(&self.agent), encoded(&self.iid))
    }

    /// Gives it a surface with these events on the Menu, those allowed.
    pub fn surface(&self, menu: &[&str], allowed: &[&str]) {
        self.desk.set(surface(&self.iid, menu, allowed));
    }

    /// Says that the Orchestrator dedupes picks (decision 34).
    pub fn keyed(&self) {
        self.desk.edit(|surface| surface["picks"] = json!("keyed"));
    }

    /// Where its working tools are rooted.
    pub fn cwd(&self) -> Result<PathBuf, Halt> {
        self.stage.folder()
    }

    /// An admission's body.
    pub fn body(&self, message: &str) -> Result<Value, Halt> {
        Ok(json!({"message": message, "cwd": self.cwd()?,
                  "definition": {"model": format!("{PROVIDER}/{}", self.model), "instructions": "You are a coder."}}))
    }

    /// The same with more fields.
    pub fn body_with(&self, message: &str, more: Value) -> Result<Value, Halt> {
        let mut body = self.body(message)?;
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        Ok(body)
    }

    /// The id of its n-th admission (decision 31).
    pub fn admission(&self, n: u64) -> String {
        format!("{}#{n}", self.iid)
    }

    /// Posts an admission, whatever it is answered with.
    pub async fn post(&self, body: &Value) -> Result<Answer, Halt> {
        let answer = self.stage.wire().call("POST", &self.path(), Some(body)).await?;
        if answer.status == 200 {
            self.open.fetch_add(1, Ordering::SeqCst);
        }
        Ok(answer)
    }

    /// Admits; the answer's JSON.
    pub async fn admit(&self, body: &Value) -> Result<Value, Halt> {
        Ok(self.post(body).await?.expect(200, "an admission")?.value)
    }

    /// Admits a prompt.
    pub async fn prompt(&self, message: &str) -> Result<Value, Halt> {
        self.admit(&self.body(message)?).await
    }

    /// Admits, and waits for the settlement.
    pub async fn turn_of(&self, body: &Value) -> Result<Value, Halt> {
        let admitted = self.admit(body).await?;
        self.settled(&admitted).await
    }

    /// Admits a prompt, and waits for the settlement.
    pub async fn turn(&self, message: &str) -> Result<Value, Halt> {
        self.turn_of(&self.body(message)?).await
    }

    /// Long-polls from an admission's offset until its Submission settles.
    pub async fn settled(&self, admitted: &Value) -> Result<Value, Halt> {
        let submission = admitted["submissionId"].as_str().unwrap_or_default().to_owned();
        let from = offset_of(&admitted["offset"]);
        let settlement = |event: &Value| event["type"] == "submission-settled" && event["submissionId"] == *submission;
        let event = self.stage.wait(&format!("the settlement of {submission}"), self.event(&from, settlement)).await?;
        // A repeated admission counts twice and is over once: then a missing request is waited for, and found missing late.
        let _ = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| open.checked_sub(1));
        Ok(event)
    }

    /// Long-polls from this offset until an event fits.
    pub async fn event(&self, from: &str, fits: impl Fn(&Value) -> bool) -> Result<Value, Halt> {
        let mut offset = from.to_owned();
        loop {
            let answer = self.poll(&offset).await?;
            if answer.status != 200 && answer.status != 204 {
                return failed(format!("a long poll: HTTP {} {}", answer.status, answer.text));
            }
            if let Some(found) = answer.value.as_array().into_iter().flatten().find(|event| fits(event)) {
                return Ok(found.clone());
            }
            match answer.header("stream-next-offset") {
                "" => return failed("a long poll's answer has no stream-next-offset"),
                next => next.clone_into(&mut offset),
            }
        }
    }

    /// One long poll from this offset.
    pub async fn poll(&self, offset: &str) -> Result<Answer, Halt> {
        let path = format!("{}?offset={}&view=updates&live=long-poll", self.path(), encoded(offset));
        self.stage.wire().call("GET", &path, None).await
    }

    /// Its stream from the start, or from an offset.
    pub async fn updates(&self, offset: Option<&str>) -> Result<Answer, Halt> {
        let from = offset.map(|offset| format!("&offset={}", encoded(offset))).unwrap_or_default();
        self.stage.wire().call("GET", &format!("{}?view=updates{from}", self.path()), None).await
    }

    /// Its events from the start.
    pub async fn events(&self) -> Result<Vec<Value>, Halt> {
        let answer = self.updates(None).await?.expect(200, "view=updates")?;
        match answer.value {
            Value::Array(events) => Ok(events),
            other => failed(format!("view=updates is no list: {other}")),
        }
    }

    /// Texts of its messages with this role, off its stream.
    pub async fn streamed(&self, role: &str) -> Result<Vec<String>, Halt> {
        let events = self.events().await?;
        let of_role = events.iter().filter(|event| event["message"]["role"] == role);
        let parts = |event: &Value| {
            let parts = event["message"]["parts"].as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str()).collect::<String>()
        };
        Ok(of_role.map(parts).collect())
    }

    /// Its history view.
    pub async fn history(&self) -> Result<Value, Halt> {
        let path = format!("{}?view=history", self.path());
        Ok(self.stage.wire().call("GET", &path, None).await?.expect(200, "view=history")?.value)
    }

    /// Whether the Harness holds it.
    pub async fn is_held(&self) -> Result<bool, Halt> {
        let path = format!("{}?view=history", self.path());
        match self.stage.wire().call("GET", &path, None).await?.status {
            200 => Ok(true),
            404 => Ok(false),
            status => failed(format!("view=history: HTTP {status}")),
        }
    }

    /// Aborts; the answer's JSON.
    pub async fn abort(&self, body: Option<Value>) -> Result<Value, Halt> {
        let answer = self.stage.wire().call("POST", &format!("{}/abort", self.path()), body.as_ref()).await?;
        Ok(answer.expect(200, "an abort")?.value)
    }

    /// The n-th request to its model, from 1; waits for it only while a Submission is open.
    pub async fn asked(&self, n: usize) -> Result<RecordedRequest, Halt> {
        let count = self.lane.count();
        if count < n && self.open.load(Ordering::SeqCst) == 0 {
            return failed(format!(
                "the model of {} was asked {count} times and every Submission is over; request {n} never came",
                self.iid
            ));
        }
        Ok(self.stage.wait(&format!("request {n} to the model of {}", self.iid), self.lane.asked(n)).await)
    }

    /// The settlement of a history view that belongs to an admission.
    pub async fn settlement(&self, admitted: &Value) -> Result<Value, Halt> {
        let history = self.history().await?;
        let mut all = history["settlements"].as_array().into_iter().flatten();
        match all.find(|one| one["submissionId"] == admitted["submissionId"]) {
            Some(found) => Ok(found.clone()),
            None => failed(format!("the history has no settlement of {}: {history}", admitted["submissionId"])),
        }
    }
}

/// An offset as a query has it, whether the answer wrote it as a text or a number.
fn offset_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
