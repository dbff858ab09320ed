//! How much of one request the next one repeats, and what the server says came from its cache. Pure.

use serde::Serialize;
use serde_json::Value;

/// How the message begins that stands in for what a compaction took away (spec H-36): the mark of the one cut there may be.
const COMPACTED: &str = "The conversation history before this point was compacted";

/// One question of a conversation and what its answer said of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The Turn, from 1.
    pub turn: usize,
    /// The request's body.
    pub request: Value,
    /// Tokens of the request, as the server counted.
    pub prompt_tokens: Option<u64>,
    /// How many of them came from its cache.
    pub cached_tokens: Option<u64>,
}

/// What became of the beginning of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The conversation's first.
    First,
    /// It should begin with the one before it.
    Continued,
    /// A marked compaction stands between them.
    Compacted,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The Turn, from 1.
    pub turn: usize,
    /// What became of its beginning.
    pub kind: Kind,
    /// Bytes of its tools and messages.
    pub bytes: usize,
    /// Bytes it shares with the request before it, from the beginning.
    pub shared_bytes: usize,
    /// Those as a share of the request before it, in percent.
    pub shared_percent: f64,
    /// Tokens of the request, as the server counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// How many of them came from its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// What the two requests say where they part, when they should not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parted: Option<String>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One line a request.
    pub lines: Vec<Line>,
    /// The least share of a continued request, in percent: 100 when each begins with the one before it.
    pub least_shared_percent: f64,
    /// Marked compactions.
    pub compactions: usize,
    /// Continued requests.
    pub continued: usize,
    /// Of the prompt tokens of continued requests, the share from the server's cache, in percent; absent when it does not
    /// say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_percent: Option<f64>,
    /// The same of what could be cached: the tokens of the request before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_of_possible_percent: Option<f64>,
}

/// What a provider's cache sees of a request: the tools, then each message.
fn prompt(request: &Value) -> String {
    let messages = request["messages"].as_array().into_iter().flatten();
    let parts: Vec<String> =
        std::iter::once(request["tools"].to_string()).chain(messages.map(Value::to_string)).collect();
    parts.join("\n") + "\n"
}

/// Whether this is a question of the conversation: the summariser's own have no tools.
pub fn is_of_conversation(request: &Value) -> bool {
    request["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// The summary a request begins with, if it does.
fn summary(request: &Value) -> Option<&str> {
    let first = request["messages"].as_array()?.iter().find(|message| message["role"] == "user")?;
    first["content"].as_str().filter(|text| text.starts_with(COMPACTED))
}

/// Compares each request with the one before it.
pub fn report(exchanges: &[Exchange]) -> Report {
    let mut lines: Vec<Line> = Vec::new();
    let mut before: Option<(String, &Exchange)> = None;
    let (mut cached, mut asked, mut possible) = (0u64, 0u64, 0u64);
    for exchange in exchanges {
        let now = prompt(&exchange.request);
        let line = line(exchange, &now, before.as_ref().map(|(text, exchange)| (text.as_str(), *exchange)));
        if let (Kind::Continued, Some(prompt), Some(hit)) = (line.kind, exchange.prompt_tokens, exchange.cached_tokens)
        {
            cached += hit;
            asked += prompt;
            possible += before.as_ref().and_then(|(_, exchange)| exchange.prompt_tokens).unwrap_or(prompt).min(prompt);
        }
        lines.push(line);
        before = Some((now, exchange));
    }
    let of = |kind: Kind| lines.iter().filter(move |line| line.kind == kind);
    let percent = |part: u64, whole: u64| (whole > 0).then(|| part as f64 * 100.0 / whole as f64);
    Report {
        least_shared_percent: of(Kind::Continued).map(|line| line.shared_percent).fold(100.0, f64::min),
        compactions: of(Kind::Compacted).count(),
        continued: of(Kind::Continued).count(),
        cached_percent: percent(cached, asked),
        cached_of_possible_percent: percent(cached, possible),
        lines,
    }
}

fn line(exchange: &Exchange, now: &str, before: Option<(&str, &Exchange)>) -> Line {
    let Exchange { turn, prompt_tokens, cached_tokens, .. } = *exchange;
    let (text, kind) = match before {
        None => ("", Kind::First),
        Some((text, before)) => {
            let cut = summary(&exchange.request).is_some_and(|now| summary(&before.request) != Some(now));
            // Frozen is frozen: over a compaction too, tools and system prompt stay.
            let frozen = exchange.request["tools"] == before.request["tools"]
                && exchange.request["messages"][0] == before.request["messages"][0];
            (text, if cut && frozen { Kind::Compacted } else { Kind::Continued })
        }
    };
    let shared = text.bytes().zip(now.bytes()).take_while(|(a, b)| a == b).count();
    let whole = shared == text.len();
    let parted =
        (kind == Kind::Continued && !whole).then(|| format!("{:?} then {:?}", part(text, shared), part(now, shared)));
    let shared_percent = if whole { 100.0 } else { shared as f64 * 100.0 / text.len() as f64 };
    Line { turn, kind, bytes: now.len(), shared_bytes: shared, shared_percent, prompt_tokens, cached_tokens, parted }
}

/// A few characters of a text around a place.
fn part(text: &str, at: usize) -> &str {
    let start = text.floor_char_boundary(at.saturating_sub(30));
    &text[start..text.floor_char_boundary(at + 50)]
}

/// Prompt tokens and cached tokens of an answer, streamed or whole, as far as it says them.
pub fn counts(answer: &str) -> (Option<u64>, Option<u64>) {
    let mut found = (None, None);
    for line in answer.lines() {
        let text = line.strip_prefix("data:").unwrap_or(line).trim();
        let Ok(value) = serde_json::from_str::<Value>(text) else { continue };
        let number = |path: &str| value.pointer(path).and_then(Value::as_u64);
        if let Some(prompt) = number("/usage/prompt_tokens") {
            let cached = number("/usage/prompt_tokens_details/cached_tokens")
                .or_else(|| number("/usage/prompt_cache_hit_tokens"))
                .or_else(|| number("/timings/cache_n"));
            found = (Some(prompt), cached);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn exchange(messages: &[&str], tokens: Option<(u64, u64)>) -> Exchange {
        let list: Vec<Value> = messages
            .iter()
            .enumerate()
            .map(|(n, text)| json!({"role": if n == 0 { "system" } else { "user" }, "content": text}))
            .collect();
        let request = json!({"tools": [{"function": {"name": "t"}}], "messages": list});
        Exchange { turn: 1, request, prompt_tokens: tokens.map(|t| t.0), cached_tokens: tokens.map(|t| t.1) }
    }

    #[test]
    fn a_conversation_that_only_grows_shares_all() {
        let report =
            report(&[exchange(&["s", "a"], None), exchange(&["s", "a", "b"], None), exchange(&["s", "a", "b"], None)]);
        assert_eq!((report.least_shared_percent, report.continued, report.compactions), (100.0, 2, 0));
        assert_eq!(report.cached_percent, None, "nobody said");
    }

    #[test]
    fn a_clock_in_the_system_prompt_is_seen() {
        let report = report(&[exchange(&["12:00", "a"], None), exchange(&["12:01", "a", "b"], None)]);
        assert!(report.least_shared_percent < 90.0, "{}", report.least_shared_percent);
        assert!(report.lines[1].parted.as_ref().unwrap().contains("12:01"));
    }

    #[test]
    fn a_marked_compaction_is_no_fault_and_an_unmarked_cut_is_one() {
        let marked = format!("{COMPACTED} into this summary: …");
        let first = exchange(&["s", "a", "b"], None);
        let cut = exchange(&["s", &marked, "b"], None);
        let next = exchange(&["s", &marked, "b", "c"], None);
        let report_of = |all: &[Exchange]| {
            let report = report(all);
            (report.least_shared_percent < 100.0, report.compactions)
        };
        assert_eq!(report_of(&[first.clone(), cut.clone(), next]), (false, 1));
        assert_eq!(report_of(&[first.clone(), exchange(&["s", "b"], None)]), (true, 0));
        let other = exchange(&["another", &marked, "b"], None);
        assert_eq!(report_of(&[first, other]), (true, 0), "a compaction changes no system prompt");
        assert_eq!(
            report_of(&[cut, exchange(&["s", &marked, "x"], None)]),
            (true, 0),
            "nor does an old one excuse a change"
        );
    }

    #[test]
    fn cached_tokens_are_a_share_of_what_was_asked_and_of_what_could_be() {
        let report = report(&[exchange(&["s", "a"], Some((100, 0))), exchange(&["s", "a", "b"], Some((200, 98)))]);
        assert_eq!((report.cached_percent, report.cached_of_possible_percent), (Some(49.0), Some(98.0)));
    }

    #[test]
    fn counts_are_read_from_streams_and_bodies() {
        let stream = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":7}}}\n\ndata: [DONE]\n";
        assert_eq!(counts(stream), (Some(9), Some(7)));
        assert_eq!(counts("{\"usage\":{\"prompt_tokens\":9},\"timings\":{\"cache_n\":4}}"), (Some(9), Some(4)));
        assert_eq!(counts("data: {\"usage\":{\"prompt_tokens\":9,\"prompt_cache_hit_tokens\":3}}"), (Some(9), Some(3)));
        assert_eq!(counts("data: {\"usage\":{\"prompt_tokens\":9}}"), (Some(9), None));
        assert_eq!(counts("data: nonsense\n"), (None, None));
    }
}
