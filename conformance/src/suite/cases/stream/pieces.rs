//! How bytes arrive.

use crate::model::Answer;
use crate::suite::case::{Outcome, same};
use crate::suite::stage::{Stage, bash, raw, text};
use serde_json::json;

/// Letters of one, two, three and four bytes.
const SAID: &str = "naïve 漢字 and 🦀🦀, then ordinary words — done";

pub async fn one_byte(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(Answer { chunk_bytes: Some(1), ..text(SAID) });
    same("text", seat.turn("Hello.").await?["text"].clone(), json!(SAID))?;
    seat.lane.say(Answer { chunk_bytes: Some(1), ..bash("c1", "printf '漢字🦀' > out; wc -c < out") });
    seat.lane.say(Answer { chunk_bytes: Some(3), ..text("Written.") });
    same("text", seat.turn("Write it.").await?["text"].clone(), json!("Written."))?;
    same("the file", std::fs::read_to_string(seat.cwd()?.join("out")).unwrap_or_default().as_str(), "漢字🦀")
}

pub async fn crlf_and_comments(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let chunk = |delta: &str, finish: &str| {
        format!("{{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}")
    };
    let stream = format!(
        ": processing\r\n\r\nevent: message\r\nid: 7\r\ndata: {}\r\n\r\n: keep-alive\r\n\r\ndata:{}\r\n\r\nretry: 10\r\n\r\ndata: {}\r\n\r\ndata: [DONE]\r\n\r\n",
        chunk("{\"content\":\"Still \"}", "null"),
        chunk("{\"content\":\"whole.\"}", "null"),
        chunk("{}", "\"stop\"")
    );
    seat.lane.say(raw(stream));
    same("text", seat.turn("Hello.").await?["text"].clone(), json!("Still whole."))
}

pub async fn asks_for_usage(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let body = seat.asked(1).await?.body;
    same("stream", body["stream"].clone(), json!(true))?;
    same("stream_options.include_usage", body["stream_options"]["include_usage"].clone(), json!(true))
}
