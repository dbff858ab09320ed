//! What the fuzzer feeds: each function takes any bytes, as a file, a body or a stream that nobody vouches for, and holds
//! what must be true of whatever was believed. Ordinary tests run the same functions over the committed corpus.
//!
//! # Panics
//! Every function here panics when a promise is broken: that is how a fuzzer hears of it.
#![allow(clippy::panic, clippy::missing_panics_doc)] // a broken promise must reach the fuzzer

use jr2_harness::briefing::notice_line;
use jr2_harness::guard::kills;
use jr2_harness::menu::read_surface;
use jr2_harness::model::decode::Decoder;
use jr2_harness::server::admit;
use jr2_orchestrator::harness_client::stream_kill;
use jr2_orchestrator::turn::{ListedKill, TurnInput};
use jr2_shared::harness::{HarnessConfig, StreamEvent};
use jr2_shared::memory_kills::{
    AT_MAX, ID_MAX, KILLS_MAX, LARGEST_LIST_BYTES, Measure, MemoryKill, MemoryKills, NAME_MAX, TOLD_MAX, is_guard_size,
    read,
};
use jr2_shared::notice::Notice;
use serde_json::Value;

/// The fuzz targets, by the names of the functions below.
pub const TARGETS: [&str; 6] =
    ["kills_file", "kill_list_answer", "stream_events", "admit_body", "surface_answer", "model_stream"];

/// A kill as it may stand in a list, and the one line it may become in a prompt.
fn believed(kill: &MemoryKill) {
    assert!(!kill.id.is_empty() && kill.id.chars().count() <= ID_MAX && kill.at.chars().count() <= AT_MAX);
    assert!(kill.told.len() <= TOLD_MAX);
    for told in &kill.told {
        assert!(told.agent.chars().count() <= NAME_MAX && told.instance_id.chars().count() <= NAME_MAX);
    }
    sizes(kill.limit.as_deref(), kill.peak.as_deref());
}

fn sizes(limit: Option<&str>, peak: Option<&str>) {
    assert!(peak.is_none() || limit.is_some(), "a peak never stands alone");
    assert!(limit.into_iter().chain(peak).all(is_guard_size));
    let notice = Notice::memory_limit(None, limit.map(str::to_owned), peak.map(str::to_owned));
    said(&notice);
}

/// A notice is one line without control characters, whatever it was made from.
fn said(notice: &Notice) {
    if let Some(line) = notice_line(notice, true) {
        assert!(line.starts_with("Notice: ") && !line.chars().any(char::is_control), "{line:?}");
    }
}

/// The Harness's kept file.
pub fn kills_file(bytes: &[u8]) {
    let parsed = kills::parse(bytes);
    let list = parsed.list.kills().to_vec();
    assert!(list.len() <= KILLS_MAX);
    list.iter().for_each(believed);
    let again = kills::parse(parsed.list.render().as_bytes());
    assert_eq!(again.list.kills(), list, "what was kept is read back");
    let answer = serde_json::to_vec(&MemoryKills { kills: list.clone() }).unwrap_or_default();
    assert!(answer.len() <= LARGEST_LIST_BYTES, "{} bytes", answer.len());
    let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
    assert_eq!(read(&value, Measure::Chars).kills, list, "the Orchestrator drops nothing that the Harness kept");
}

/// The answer of `GET /memory-kills`.
pub fn kill_list_answer(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let (by_bytes, by_chars) = (read(&value, Measure::Bytes), read(&value, Measure::Chars));
    for reading in [&by_bytes, &by_chars] {
        assert!(reading.kills.len() <= KILLS_MAX);
        reading.kills.iter().for_each(believed);
    }
    let listed = ListedKill::of(by_chars.kills.clone(), "r/root/a");
    assert_eq!(listed.len(), by_chars.kills.len());
}

/// Events of an updates stream.
pub fn stream_events(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let one = [value.clone()];
    let events: &[Value] = value.as_array().map_or(&one, Vec::as_slice);
    for event in events {
        let _ = serde_json::from_value::<StreamEvent>(event.clone()); // whether it parses is not the promise
        if let Some(TurnInput::StreamKill { id, peak, limit, .. }) = stream_kill(event, "s-1-abcdef", |_| {}) {
            assert!(id.is_none_or(|id| !id.is_empty() && id.chars().count() <= ID_MAX));
            sizes(limit.as_deref(), peak.as_deref());
        }
    }
}

/// The body of an admission.
pub fn admit_body(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let config = HarnessConfig { providers: Vec::new() };
    let _ = admit::read_with(&config, false, true, "coder", "r/root/coder", &value); // refused or not, it must answer
    for carried in jr2_shared::notice::read_notices(value.get("notices").unwrap_or(&Value::Null)) {
        said(&carried.notice);
    }
}

/// The answer of a surface read.
pub fn surface_answer(bytes: &[u8]) {
    if let Ok(Ok(menu)) = read_surface(bytes) {
        let mut tools: Vec<&str> = menu.picks.iter().map(|pick| pick.tool.as_str()).collect();
        tools.sort_unstable();
        let all = tools.len();
        tools.dedup();
        assert_eq!(tools.len(), all, "two picks share a tool");
        assert!(menu.allowed.iter().all(|event| menu.picks.iter().any(|pick| pick.event == *event)));
        assert_eq!(menu.specs().len(), all);
    }
}

/// A model's stream, whole and cut in two at a place that the first byte names.
pub fn model_stream(bytes: &[u8]) {
    let Some((place, stream)) = bytes.split_first() else { return };
    let cut = usize::from(*place) * stream.len() / 256;
    let decode = |parts: &[&[u8]]| {
        let mut decoder = Decoder::new("t");
        let events: Vec<_> = parts.iter().flat_map(|part| decoder.push(part)).collect();
        format!("{events:?} {:?}", decoder.finish())
    };
    assert_eq!(decode(&[stream]), decode(&[&stream[..cut], &stream[cut..]]), "the events depend on the cut");
}
