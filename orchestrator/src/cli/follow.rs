//! Follows a run until it ends or needs a person, and shows what happens.

use super::client::Client;
use super::exit::{Exit, Failure};
use super::output;
use super::sse::SseEvent;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// Pause before a lost feed is joined again.
const REJOIN: Duration = Duration::from_millis(500);
/// How often the live line is drawn and a run that said something is asked where it stands.
const TICK: Duration = Duration::from_millis(100);
/// How long the last words of a run that rests are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Longest text shown of one value.
const VALUE_MAX_CHARS: usize = 200;

/// Where a run came to rest.
#[derive(Clone, Debug)]
pub enum Rest {
    /// It ended.
    Ended(Value),
    /// It waits for a person at a Gate, and nothing else goes on.
    Gate(Value),
    /// It waits for an outside event or a delay, and nothing else goes on.
    Idle(Value),
}

/// Whether a wait without a Gate is a rest: yes for whoever only wants the next wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Delays fire and others send events: go on until a Gate or the end.
    Gate,
    /// The next wait of any kind.
    Wait,
    /// Its end alone.
    End,
}

/// Shows lines of activity, with a live line below them on a terminal.
pub struct Progress {
    live: bool,
    stdout: bool,
    last_id: Option<String>,
    now: String,
    since: std::time::Instant,
    drawn: bool,
    /// More lines that belong to the run, such as a Harness's log.
    tail: Option<super::attempt::Tail>,
}

impl Progress {
    /// Onto stderr.
    pub fn new() -> Self {
        Self {
            live: output::fancy(),
            stdout: false,
            last_id: None,
            now: String::new(),
            since: std::time::Instant::now(),
            drawn: false,
            tail: None,
        }
    }

    /// Onto stderr, for whoever heard everything up to the save `rev`.
    pub fn after(rev: u64) -> Self {
        Self { last_id: Some(format!("{rev}.{}", u32::MAX)), ..Self::new() }
    }

    /// Onto stdout: what happened is the result.
    pub fn onto_stdout() -> Self {
        Self { live: false, stdout: true, ..Self::new() }
    }

    /// With a Harness's log beside the feed.
    pub fn with_tail(mut self, tail: super::attempt::Tail) -> Self {
        self.tail = Some(tail);
        self
    }

    /// A line of activity.
    pub fn line(&mut self, text: &str) {
        self.clear();
        let text = output::plain(text);
        if self.stdout {
            output::data(&text);
        } else {
            output::say(&text);
        }
    }

    fn show_tail(&mut self) {
        let lines = self.tail.as_mut().map(super::attempt::Tail::lines).unwrap_or_default();
        for line in lines {
            self.line(&line);
        }
    }

    fn draw(&mut self) {
        self.show_tail();
        if self.live && !self.now.is_empty() {
            let seconds = self.since.elapsed().as_secs();
            let mut err = std::io::stderr().lock();
            // A terminal that is gone shows nothing, and that is all.
            let _ = write!(err, "\r\x1b[2K\x1b[2m{} … {seconds}s\x1b[0m", self.now);
            let _ = err.flush();
            self.drawn = true;
        }
    }

    /// Takes the live line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }

    fn event(&mut self, event: &SseEvent) {
        if event.id.is_some() {
            self.last_id.clone_from(&event.id);
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or(Value::Null);
        self.entry(&event.event, &data);
    }

    /// One entry of a feed.
    pub fn entry(&mut self, kind: &str, data: &Value) {
        if kind == "status" {
            let states = output::states(&data["value"]);
            if states != self.now {
                self.since = std::time::Instant::now();
                self.now.clone_from(&states);
                if !states.is_empty() {
                    self.line(&format!("● {states}"));
                }
            }
            return;
        }
        self.show_tail();
        if let Some(text) = words(kind, data) {
            self.line(&text);
        }
    }
}

/// A feed entry for people.
fn words(kind: &str, data: &Value) -> Option<String> {
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    Some(match kind {
        "placing" => format!("  a Workspace is being made ({})", text("sandbox")),
        "placed" => format!("  the Workspace is there after {} ms", data["afterMs"].as_u64().unwrap_or(0)),
        "admission" => format!("  {} works (admission {})", text("agent"), data["admission"]),
        "pick" if data["answered"] == true => format!("  {} is answered", text("event")),
        "pick" if data["outstanding"] == true => format!("  picked {} (waits for its answer)", text("event")),
        "pick" => format!("  picked {}{}", text("event"), if data["moved"] == true { "" } else { " (stays)" }),
        "retry" => format!("  again, attempt {}: {}", data["attempt"], clip(&text("reason"))),
        "fault" => format!("  {}: {}: {}", text("child"), text("event"), clip(&text("reason"))),
        "gate" => format!("  Gate {} is open", text("activation")),
        "emit" => format!("  said {}", clip(&data["event"].to_string())),
        "branch" if data["kept"] == true => format!("  the Workspace is kept: {}", text("message")),
        "branch" => {
            let line = format!("  branch {} is saved in {}", text("branch"), text("repository"));
            match super::status::left_out(data) {
                Some(words) => format!("{line} ({words})"),
                None => line,
            }
        }
        "activity" => format!("  {}", clip(&text("text"))),
        _ => return None,
    })
}

fn clip(text: &str) -> String {
    let mut short: String = text.chars().take(VALUE_MAX_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Follows until the run rests. A feed that breaks is joined again where it broke.
pub async fn follow(client: &Client, run: &str, progress: &mut Progress, until: Until) -> Result<Rest, Failure> {
    loop {
        if let Some(rest) = follow_once(client, run, progress, until).await? {
            progress.show_tail();
            progress.clear();
            return Ok(rest);
        }
        if !client.hello().await {
            progress.clear();
            return Err(
                Failure::failed("the server stopped answering").help(format!("`jr2 logs {run} -f` joins again"))
            );
        }
        tokio::time::sleep(REJOIN).await;
    }
}

async fn follow_once(
    client: &Client,
    run: &str,
    progress: &mut Progress,
    until: Until,
) -> Result<Option<Rest>, Failure> {
    let mut feed = client.feed(run, progress.last_id.as_deref()).await?;
    let mut tick = tokio::time::interval(TICK);
    // The end of an abort or of a step is said by no entry, so a run that is nearly at rest is asked again.
    let mut ask = false;
    loop {
        tokio::select! {
            biased;
            event = feed.next() => {
                let Some(event) = event else { return Ok(at_rest(client, run, until).await?.ok()) };
                progress.event(&event);
                ask = true;
                continue;
            }
            _ = tick.tick() => progress.draw(),
        }
        if ask {
            match at_rest(client, run, until).await? {
                Ok(rest) => {
                    let ended = matches!(rest, Rest::Ended(_));
                    if !ended {
                        // What it said before it came to rest may still be on its way: joined anew, the feed gives all of it.
                        feed = client.feed(run, progress.last_id.as_deref()).await?;
                    }
                    hear_out(&mut feed, progress, if ended { "closed" } else { "caught-up" }).await;
                    return Ok(Some(rest));
                }
                Err(soon) => ask = soon,
            }
        }
    }
}

/// The run rests, but what it said last may still be on its way.
async fn hear_out(feed: &mut super::client::Feed, progress: &mut Progress, last: &str) {
    let rest = async {
        while let Some(event) = feed.next().await {
            if event.event == last {
                break;
            }
            progress.event(&event);
        }
    };
    tokio::time::timeout(LAST_WORDS, rest).await.ok(); // a feed that says nothing more keeps nobody waiting
}

/// Where the run rests; otherwise whether that may change unsaid.
async fn at_rest(client: &Client, run: &str, until: Until) -> Result<Result<Rest, bool>, Failure> {
    let status = client.status(run).await?;
    if status["status"] != "live" {
        return Ok(Ok(Rest::Ended(status)));
    }
    let gates = status["gates"].as_array().is_some_and(|gates| !gates.is_empty());
    let wanted = match until {
        Until::End => false,
        Until::Gate => gates,
        Until::Wait => true,
    };
    Ok(match (wanted, status["idle"] == true) {
        (true, true) if gates => Ok(Rest::Gate(status)),
        (true, true) => Ok(Rest::Idle(status)),
        (wanted, _) => Err(wanted),
    })
}

/// Waits until an ended run has let everything go: its Sandboxes removed, its aborts answered.
pub async fn settled(client: &Client, run: &str, limit: Duration) {
    let deadline = tokio::time::Instant::now() + limit;
    while tokio::time::Instant::now() < deadline {
        match client.status(run).await {
            Ok(status) if status["idle"] != true => tokio::time::sleep(TICK).await,
            _ => return,
        }
    }
}

/// The exit code of an ended run.
pub fn exit_of(status: &Value) -> Exit {
    match status["status"].as_str() {
        Some("done") => Exit::Ok,
        Some("error") => Exit::Fault,
        _ => Exit::Failed,
    }
}
