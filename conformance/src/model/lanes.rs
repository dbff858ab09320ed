//! Lanes: a conversation whose answers are given while it runs. A request for a lane's model waits until there is an answer.
//!
//! A test that drives a Harness step by step says each answer when it wants it said, and looks at each request when it came.

use super::answer::{Reply, render};
use super::matching::Captures;
use super::record::RecordedRequest;
use super::request::Seen;
use super::script::Answer;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Most requests a lane keeps: a conversation of a few hundred steps.
const KEPT_REQUESTS: usize = 1_024;

/// One conversation's answers and requests. Which conversation it is, the request's `model` says.
#[derive(Debug)]
pub struct Lane {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Answer>,
    /// What is said when no answer waits; without it a request waits.
    always: Option<fn(usize) -> Answer>,
    requests: Vec<RecordedRequest>,
    closed: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Lane {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.send_modify(|n| *n += 1);
    }

    /// Adds an answer behind those that wait.
    pub fn say(&self, answer: Answer) {
        self.change(|state| state.answers.push_back(answer));
    }

    /// What is said whenever no answer waits; it is given the request's number, from 1.
    pub fn always(&self, answer: fn(usize) -> Answer) {
        self.change(|state| state.always = Some(answer));
    }

    /// Ends the lane: what waits now and comes later is refused.
    pub fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().requests.clone()
    }

    /// How many requests came.
    pub fn count(&self) -> usize {
        self.lock().requests.len()
    }

    /// Waits for request number `n`, from 1.
    pub async fn asked(&self, n: usize) -> RecordedRequest {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(request) = self.lock().requests.get(n.saturating_sub(1)) {
                return request.clone();
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes a request and waits for its answer.
    pub(super) async fn answer(&self, record: &RecordedRequest, seen: &Seen) -> Reply {
        let mut number = 0;
        self.change(|state| {
            if state.requests.len() < KEPT_REQUESTS {
                state.requests.push(record.clone());
            }
            number = state.requests.len();
        });
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            match self.next(number) {
                Next::Say(answer) => {
                    return render(&answer, seen, &Captures::new())
                        .unwrap_or_else(|problem| Reply::error(400, "script_error", &problem));
                }
                Next::Closed => return Reply::error(400, "closed", "this conversation is over"),
                Next::Wait => {}
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn next(&self, number: usize) -> Next {
        let mut state = self.lock();
        if state.closed {
            return Next::Closed;
        }
        let answer = state.answers.pop_front().or_else(|| state.always.map(|always| always(number)));
        answer.map_or(Next::Wait, |answer| Next::Say(Box::new(answer)))
    }
}

/// What a waiting request comes to.
enum Next {
    /// This answer.
    Say(Box<Answer>),
    /// Nothing is said here any more.
    Closed,
    /// There is nothing to say yet.
    Wait,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use super::super::{Script, ScriptedModel};
    use super::*;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_request_waits_until_its_answer_is_said() {
        let model = ScriptedModel::start(Script::parse(r#"{"rules": []}"#, ".".as_ref()).unwrap()).unwrap();
        let lane = model.lane("mine");
        let ask = |name: &'static str| {
            let url = format!("{}/chat/completions", model.url());
            async move {
                crate::tls::install();
                let body = json!({"model": name, "messages": [{"role": "user", "content": "Hello"}]});
                let client = reqwest::Client::builder().no_proxy().build().unwrap();
                client.post(url).json(&body).send().await.unwrap().json::<Value>().await.unwrap()
            }
        };
        let waits = tokio::spawn(ask("mine"));
        assert_eq!(lane.asked(1).await.body["model"], "mine");
        assert!(!waits.is_finished());
        lane.say(Answer { text: Some("Good day".into()), ..Answer::default() });
        assert_eq!(waits.await.unwrap()["choices"][0]["message"]["content"], "Good day");
        assert!(ask("other").await["error"]["message"].as_str().unwrap().contains("no rule fits"));
        lane.close();
        assert_eq!(ask("mine").await["error"]["message"], "this conversation is over");
        assert_eq!(lane.count(), 2);
    }
}
