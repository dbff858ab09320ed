//! The spans of a run and its Turns, made when they end. Their ids come from the run, so a restart changes nothing.

use super::Seen;
use crate::run::Status;
use crate::run::view::status_word;
use jr2_shared::ids::RunId;
use jr2_telemetry::context::TraceParent;
use jr2_telemetry::{Kind, Span, Value, genai};
use std::time::{Duration, SystemTime};

/// The spans of what is over.
pub fn spans(run: &RunId, all: &[Seen]) -> Vec<Span> {
    all.iter().filter_map(|seen| span(run.as_str(), seen)).collect()
}

fn span(run: &str, seen: &Seen) -> Option<Span> {
    let text = |text: &str| Value::Text(text.to_owned());
    match seen {
        Seen::RunEnded { workflow, status, began, ended, reason } => Some(Span {
            name: format!("{} {workflow}", genai::INVOKE_WORKFLOW),
            kind: Kind::Internal,
            own: Some(TraceParent::of_run(run)),
            parent: None,
            began: instant(*began),
            ended: instant(*ended),
            attributes: vec![
                (genai::OPERATION, text(genai::INVOKE_WORKFLOW)),
                (genai::WORKFLOW, text(workflow)),
                (genai::RUN, text(run)),
                (genai::OUTCOME, text(status_word(*status))),
            ],
            error: matches!(status, Status::Error | Status::Lost)
                .then(|| reason.clone().unwrap_or_else(|| status_word(*status).to_owned())),
        }),
        Seen::TurnEnded { serial, agent, iid, began, ended, outcome } => Some(Span {
            name: format!("{} {agent}", genai::INVOKE_AGENT),
            kind: Kind::Client,
            own: Some(TraceParent::of_turn(run, *serial)),
            parent: Some(TraceParent::of_run(run)),
            began: instant(*began),
            ended: instant(*ended),
            attributes: vec![
                (genai::OPERATION, text(genai::INVOKE_AGENT)),
                (genai::AGENT, text(agent)),
                (genai::CONVERSATION, text(iid)),
                (genai::RUN, text(run)),
                (genai::OUTCOME, text(outcome)),
            ],
            error: None,
        }),
        _ => None,
    }
}

fn instant(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}
