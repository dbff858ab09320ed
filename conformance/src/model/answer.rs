//! From a rule's answer to the bytes of a response. Pure: the same request and rule give the same bytes.

use super::matching::{Captures, fill};
use super::request::Seen;
use super::script::{Answer, ErrorAnswer, Raw, ScriptedCall};
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// `created` of every answer: fixed, so that equal requests get equal bytes.
const CREATED: u64 = 1_750_000_000;
/// How many bytes count as one token where the script names no usage.
const BYTES_PER_TOKEN: usize = 4;

/// A response, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// The body, one element per write.
    pub pieces: Vec<Bytes>,
    /// Wait before the first byte.
    pub delay: Duration,
    /// Wait between writes.
    pub piece_delay: Duration,
    /// How the connection ends.
    pub end: End,
}

/// How a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As HTTP says.
    Whole,
    /// The connection closes after the pieces, without the body's end.
    Cut,
    /// The connection closes before one byte.
    Close,
}

impl Reply {
    /// A JSON body in one piece.
    pub fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            pieces: vec![Bytes::from(body.to_string())],
            delay: Duration::ZERO,
            piece_delay: Duration::ZERO,
            end: End::Whole,
        }
    }

    /// An error in the shape of the chat-completions wire.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": null}}))
    }
}

/// Renders a rule's answer to a request. The error says which placeholder has no value or what is wrong with raw bytes.
pub fn render(answer: &Answer, seen: &Seen, captures: &Captures) -> Result<Reply, String> {
    let mut reply = if let Some(raw) = &answer.raw {
        raw_reply(raw, captures)?
    } else if let Some(error) = &answer.error {
        error_reply(error, captures)?
    } else if answer.close {
        Reply { end: End::Close, ..Reply::json(200, &Value::Null) }
    } else if seen.stream {
        stream_reply(&Said::from(answer, seen, captures)?, answer, seen)
    } else {
        whole_reply(&Said::from(answer, seen, captures)?, seen)
    };
    for (name, value) in &answer.headers {
        reply.headers.retain(|(n, _)| n != name);
        reply.headers.push((name.clone(), filled(value, captures)?));
    }
    reply.delay = Duration::from_millis(answer.delay_ms);
    reply.piece_delay = Duration::from_millis(answer.chunk_delay_ms);
    let one_write = answer.chunk_bytes.is_none() && answer.chunk_delay_ms == 0 && answer.delta_chars.is_none();
    if one_write {
        // The quickest way out, so that the answer time of a benchmark is the Harness's.
        reply.pieces = vec![Bytes::from(reply.pieces.concat())];
    }
    if let Some(bytes) = answer.chunk_bytes {
        reply.pieces = slices(&reply.pieces.concat(), bytes);
    }
    if let Some(bytes) = answer.cut_after_bytes {
        reply.pieces = cut(reply.pieces, bytes);
        reply.end = End::Cut;
    }
    Ok(reply)
}

/// What is said, with placeholders filled.
struct Said {
    text: Option<String>,
    reasoning: Option<String>,
    /// id, name, arguments.
    calls: Vec<(String, String, String)>,
    finish: String,
    usage: Value,
}

impl Said {
    fn from(answer: &Answer, seen: &Seen, captures: &Captures) -> Result<Self, String> {
        let optional = |text: &Option<String>| text.as_deref().map(|t| filled(t, captures)).transpose();
        let mut calls = Vec::new();
        for (place, call) in answer.tool_calls.iter().enumerate() {
            let id = call.id.clone().unwrap_or_else(|| format!("call_{}_{place}", seen.assistant_messages()));
            calls.push((id, filled(&call.name, captures)?, arguments(call, captures)?));
        }
        let (text, reasoning) = (optional(&answer.text)?, optional(&answer.reasoning)?);
        let length = [&text, &reasoning].into_iter().flatten().map(String::len).sum::<usize>()
            + calls.iter().map(|(_, name, arguments)| name.len() + arguments.len()).sum::<usize>();
        let estimate = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
        let (prompt, completion, cached) = answer
            .usage
            .map_or((estimate(seen.body.len()), estimate(length), 0), |u| (u.prompt, u.completion, u.cached));
        let usual = if calls.is_empty() { "stop" } else { "tool_calls" };
        Ok(Self {
            text,
            reasoning,
            finish: answer.finish_reason.clone().unwrap_or_else(|| usual.to_owned()),
            usage: json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
                          "prompt_tokens_details": {"cached_tokens": cached}}),
            calls,
        })
    }
}

fn filled(template: &str, captures: &Captures) -> Result<String, String> {
    fill(template, captures).map_err(|name| format!("`{{{{{name}}}}}` has no value in this request"))
}

fn arguments(call: &ScriptedCall, captures: &Captures) -> Result<String, String> {
    match &call.arguments {
        Value::String(raw) => filled(raw, captures),
        value => Ok(filled_value(value, captures)?.to_string()),
    }
}

/// Fills the strings inside a JSON value, so that a captured quote cannot break the arguments.
fn filled_value(value: &Value, captures: &Captures) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(filled(text, captures)?),
        Value::Array(list) => Value::Array(list.iter().map(|v| filled_value(v, captures)).collect::<Result<_, _>>()?),
        Value::Object(map) => Value::Object(
            map.iter().map(|(k, v)| Ok((k.clone(), filled_value(v, captures)?))).collect::<Result<_, String>>()?,
        ),
        other => other.clone(),
    })
}

fn completion_id(seen: &Seen) -> String {
    format!("chatcmpl-{}-{}", seen.conversation.chars().take(16).collect::<String>(), seen.assistant_messages())
}

fn whole_reply(said: &Said, seen: &Seen) -> Reply {
    let mut message = json!({"role": "assistant", "content": said.text});
    if let Some(reasoning) = &said.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !said.calls.is_empty() {
        let call = |(id, name, arguments): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        message["tool_calls"] = said.calls.iter().map(call).collect();
    }
    Reply::json(
        200,
        &json!({"id": completion_id(seen), "object": "chat.completion", "created": CREATED, "model": seen.model,
                "choices": [{"index": 0, "message": message, "finish_reason": said.finish}], "usage": said.usage}),
    )
}

fn stream_reply(said: &Said, answer: &Answer, seen: &Seen) -> Reply {
    let id = completion_id(seen);
    let chunk = |choices: Value| json!({"id": id, "object": "chat.completion.chunk", "created": CREATED, "model": seen.model, "choices": choices});
    let event = |value: &Value| Bytes::from(format!("data: {value}\n\n"));
    let delta = |delta: Value| event(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])));
    let parts = |text: &str| characters(text, answer.delta_chars);

    let mut pieces = vec![delta(json!({"role": "assistant", "content": null}))];
    for part in said.reasoning.iter().flat_map(|text| parts(text)) {
        pieces.push(delta(json!({"reasoning_content": part})));
    }
    for part in said.text.iter().flat_map(|text| parts(text)) {
        pieces.push(delta(json!({"content": part})));
    }
    for (index, (id, name, arguments)) in said.calls.iter().enumerate() {
        let head = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        pieces.push(delta(json!({"tool_calls": [head]})));
        for part in parts(arguments) {
            pieces.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]})));
        }
    }
    pieces.push(event(&chunk(json!([{"index": 0, "delta": {}, "finish_reason": said.finish}]))));
    if seen.include_usage {
        let mut last = chunk(json!([]));
        last["usage"] = said.usage.clone();
        pieces.push(event(&last));
    }
    if !answer.no_done {
        pieces.push(Bytes::from_static(b"data: [DONE]\n\n"));
    }
    Reply { pieces, headers: event_stream(), ..Reply::json(200, &Value::Null) }
}

fn event_stream() -> Vec<(String, String)> {
    [("content-type", "text/event-stream"), ("cache-control", "no-cache")].map(|(n, v)| (n.into(), v.into())).to_vec()
}

fn error_reply(error: &ErrorAnswer, captures: &Captures) -> Result<Reply, String> {
    let message = filled(&error.message, captures)?;
    let body = json!({"error": {"message": message, "type": error.kind.as_deref().unwrap_or("scripted_error"),
                                "param": null, "code": error.code}});
    let mut reply = Reply::json(error.status, &body);
    if let Some(body) = &error.body {
        reply.pieces = vec![Bytes::from(filled(body, captures)?)];
    }
    if let Some(after) = &error.retry_after {
        reply.headers.push(("retry-after".to_owned(), after.clone()));
    }
    Ok(reply)
}

fn raw_reply(raw: &Raw, captures: &Captures) -> Result<Reply, String> {
    let (mut status, mut headers, body) = if raw.recorded {
        recorded(&raw.bytes)?
    } else if raw.file.is_some() {
        (200, event_stream(), raw.bytes.clone())
    } else {
        (200, event_stream(), filled(&String::from_utf8_lossy(&raw.bytes), captures)?.into_bytes())
    };
    status = raw.status.unwrap_or(status);
    if let Some(kind) = &raw.content_type {
        headers.retain(|(name, _)| name != "content-type");
        headers.push(("content-type".to_owned(), kind.clone()));
    }
    Ok(Reply { status, headers, pieces: vec![Bytes::from(body)], ..Reply::json(200, &Value::Null) })
}

/// Status, headers and body of a response.
type Parts = (u16, Vec<(String, String)>, Vec<u8>);

/// Reads a recorded response. Headers about the recorded connection are dropped: this connection has its own.
fn recorded(bytes: &[u8]) -> Result<Parts, String> {
    const OF_THE_CONNECTION: [&str; 4] = ["connection", "keep-alive", "transfer-encoding", "content-length"];
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").ok_or("the recorded response has no end of headers")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the recorded headers are not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .filter(|(name, _)| !OF_THE_CONNECTION.contains(&name.as_str()))
        .collect();
    Ok((status.ok_or("the recorded response has no status")?, headers, bytes[end + 4..].to_vec()))
}

fn characters(text: &str, size: Option<usize>) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    match size {
        Some(size) => all.chunks(size).map(|part| part.iter().collect()).collect(),
        None if text.is_empty() => Vec::new(),
        None => vec![text.to_owned()],
    }
}

fn slices(bytes: &[u8], size: usize) -> Vec<Bytes> {
    bytes.chunks(size).map(Bytes::copy_from_slice).collect()
}

fn cut(pieces: Vec<Bytes>, mut left: usize) -> Vec<Bytes> {
    let mut kept = Vec::new();
    for piece in pieces {
        let take = piece.len().min(left);
        left -= take;
        if take > 0 {
            kept.push(piece.slice(..take));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(stream: bool) -> Seen {
        let body = json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true}, "user": "k",
                          "messages": [{"role": "user", "content": "hi"}]});
        Seen::read("/v1/chat/completions", Vec::new(), body.to_string()).unwrap()
    }

    fn reply(answer: Value, stream: bool) -> Result<Reply, String> {
        let captures = Captures::from([("q".to_owned(), "say \"hi\"".to_owned())]);
        let script = crate::model::Script::from_json(json!({"rules": [{"answer": answer}]})).unwrap();
        render(&script.rules[0].answer, &seen(stream), &captures)
    }

    fn body(reply: &Reply) -> String {
        String::from_utf8(reply.pieces.concat()).unwrap()
    }

    #[test]
    fn a_streamed_answer_has_the_wire_s_shape() {
        let answer = json!({"reasoning": "hm", "text": "abc", "deltaChars": 2, "toolCalls": [{"name": "t", "arguments": {"q": "{{q}}"}}],
                            "usage": {"promptTokens": 7, "completionTokens": 3}});
        let text = body(&reply(answer, true).unwrap());
        let text = text.replace(
            "\"id\":\"chatcmpl-k-0\",\"object\":\"chat.completion.chunk\",\"created\":1750000000,\"model\":\"m\",",
            "",
        );
        insta::assert_snapshot!(text, @r#"
        data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"content":"ab"},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_0_0","type":"function","function":{"name":"t","arguments":""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"q\""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":\""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"sa"}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"y "}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\\""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"hi"}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\\""}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]},"finish_reason":null}]}

        data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

        data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}}

        data: [DONE]
        "#);
    }

    #[test]
    fn a_whole_answer_has_the_wire_s_shape() {
        let answer = json!({"text": "a", "toolCalls": [{"name": "t", "arguments": "{\"cut", "id": "x"}]});
        let value: Value = serde_json::from_str(&body(&reply(answer, false).unwrap())).unwrap();
        assert_eq!(value["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"cut");
        assert_eq!(value["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(value["usage"]["total_tokens"].as_u64().unwrap(), seen(false).body.len().div_ceil(4) as u64 + 2);
    }

    #[test]
    fn cuts_chunks_and_endings_are_exact() {
        let cut = reply(json!({"raw": {"body": "0123456789"}, "chunkBytes": 3, "cutAfterBytes": 7}), true).unwrap();
        assert_eq!(cut.pieces, ["012", "345", "6"].map(Bytes::from).to_vec());
        assert_eq!(cut.end, End::Cut);
        assert_eq!(reply(json!({"close": true}), true).unwrap().end, End::Close);
        assert!(!body(&reply(json!({"text": "x", "noDone": true}), true).unwrap()).contains("DONE"));
    }

    #[test]
    fn errors_carry_status_and_retry_after() {
        let reply = reply(json!({"error": {"status": 429, "message": "slow {{q}}", "retryAfter": "2"}}), true).unwrap();
        assert_eq!((reply.status, reply.headers[1].1.as_str()), (429, "2"));
        assert!(body(&reply).contains("slow say \\\"hi\\\""));
    }

    #[test]
    fn a_placeholder_without_a_value_is_named() {
        assert_eq!(reply(json!({"text": "{{no}}"}), true), Err("`{{no}}` has no value in this request".to_owned()));
    }

    #[test]
    fn a_recorded_response_gives_status_headers_and_body() {
        let (status, headers, body) = recorded(b"HTTP/1.1 400 Bad\r\nX-A: 1\r\nConnection: close\r\n\r\n{}").unwrap();
        assert_eq!((status, headers, body), (400, vec![("x-a".into(), "1".into())], b"{}".to_vec()));
        assert!(recorded(b"HTTP/1.1 200 OK\r\n").is_err());
    }
}
