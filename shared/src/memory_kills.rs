//! The memory-kill list: what the Harness keeps of its guard's kills and the Orchestrator reads (spec 9.5, 10.4, the seed).
//!
//! The Agent's uid can write the file behind the list, so both sides read it with the same bounds and believe nothing that
//! is outside them: [`read`] drops what does not fit, keeps the rest and says what it left out.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Kills kept, the newest: a newer kill tells the same thing as the one it pushes out (spec N-35, N-40).
pub const KILLS_MAX: usize = 16;
/// Conversations kept in one kill's `told`, the newest: more than one Sandbox runs at a time (spec N-35).
pub const TOLD_MAX: usize = 32;
/// Longest id of a kill: ours have 16 characters, another build may use a UUID (spec N-35).
pub const ID_MAX: usize = 64;
/// Longest time of a kill: RFC 3339 with any sensible fraction fits (spec N-35).
pub const AT_MAX: usize = 64;
/// Longest `agent` and `instanceId` of a told entry: a run id, a path and a name fit (spec N-35).
pub const NAME_MAX: usize = 128;
/// Longest `peak` and `limit`: the guard writes at most `16777216.0Gi` (decision 9, spec M-15).
pub const SIZE_MAX: usize = 16;
/// Most bytes read of the end of the Harness's file: a file within the bounds fits whole (spec N-39).
pub const FILE_TAIL_MAX_BYTES: usize = 256 << 10;
/// Most bytes the Orchestrator reads of an answer (spec N-39).
pub const ANSWER_MAX_BYTES: usize = 256 << 10;
/// Bytes of the largest list the bounds allow, as compact JSON (spec N-39, M-15).
pub const LARGEST_LIST_BYTES: usize = 149_259;
/// Most faults one reading reports: enough to see what is wrong, and no reader's log can be flooded.
pub const FAULTS_MAX: usize = 64;

/// The answer of `GET /memory-kills` (spec M-15): `{"kills": […]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryKills {
    /// Oldest first, in the Harness's own order of kills (spec M-16).
    pub kills: Vec<MemoryKill>,
}

/// One kill of the memory guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryKill {
    /// Names the kill on every path that reports it (spec N-24).
    pub id: String,
    /// When, RFC 3339.
    pub at: String,
    /// The most that was used, as a Size is written; never without `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<String>,
    /// The limit, as a Size is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The conversations whose bash call returned this kill's verdict to the model (spec N-27).
    #[serde(default)]
    pub told: Vec<Told>,
}

/// A conversation that was told of a kill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// The Agent's name.
    pub agent: String,
    /// The conversation.
    pub instance_id: String,
}

/// How a text's length is counted (spec N-38): characters are never more than bytes, so what the Harness keeps the
/// Orchestrator never drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of the JSON text between its quotes, escapes included: the Harness.
    Bytes,
    /// Characters: the Orchestrator.
    Chars,
}

impl Measure {
    /// The length of a text.
    pub fn of(self, text: &str) -> usize {
        match self {
            // A string always serializes; the two quotes do not count.
            Self::Bytes => serde_json::to_string(text).map_or(usize::MAX, |json| json.len() - 2),
            Self::Chars => text.chars().count(),
        }
    }

    fn fits(self, text: &str, max: usize) -> bool {
        !text.is_empty() && self.of(text) <= max
    }
}

/// What a reading gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The believed kills, oldest first.
    pub kills: Vec<MemoryKill>,
    /// What was left out, at most [`FAULTS_MAX`].
    pub faults: Vec<ReadFault>,
}

impl Reading {
    /// Whether the value was a list at all; if not, the reader could not tell and must not take it as an empty list (spec
    /// N-43).
    pub fn is_list(&self) -> bool {
        !self.faults.contains(&ReadFault::NoList)
    }

    fn fault(&mut self, fault: ReadFault) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }
}

/// Something that was left out of a reading. It holds no text of the Agent's, so a log line may print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFault {
    /// No `{"kills": […]}`.
    #[error("no list of kills")]
    NoList,
    /// A kill is not believed.
    #[error("kill dropped: {0}")]
    Kill(DropReason),
    /// A told entry is not a pair of names within the bounds.
    #[error("told entry left out: it does not name an Agent and a conversation within the bounds")]
    Told,
    /// More told entries than are kept.
    #[error("{0} told entries left out: only the newest {TOLD_MAX} are kept")]
    OlderTold(usize),
    /// A size is not in the guard's form (spec N-37).
    #[error("{0} left out: it is not a size in the guard's form")]
    Size(SizeField),
    /// More kills than are kept.
    #[error("{0} older kills left out: only the newest {KILLS_MAX} are kept")]
    OlderKills(usize),
}

/// Why a kill is dropped (spec N-35).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// Not a JSON object.
    #[error("it is no object")]
    NoObject,
    /// No id, or one outside the bounds.
    #[error("it has no id of 1 to {ID_MAX}")]
    Id,
    /// No time, one outside the bounds, or text that is no time.
    #[error("it has no time of at most {AT_MAX} that parses")]
    At,
    /// An earlier kill has its id: an order by id must be total (spec M-16).
    #[error("another kill has its id")]
    Repeated,
}

/// One of a kill's two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeField {
    /// `peak`.
    #[error("peak")]
    Peak,
    /// `limit`.
    #[error("limit")]
    Limit,
}

/// Reads a list, believing nothing outside the bounds. Never fails and never panics, whatever the value is.
pub fn read(value: &Value, measure: Measure) -> Reading {
    let mut reading = Reading::default();
    let Some(list) = value.get("kills").and_then(Value::as_array) else {
        reading.fault(ReadFault::NoList);
        return reading;
    };
    read_items(list, measure, reading)
}

/// Reads kills that stand one by one, oldest first, as a file of lines holds them.
pub fn read_each(kills: &[Value], measure: Measure) -> Reading {
    read_items(kills, measure, Reading::default())
}

fn read_items(list: &[Value], measure: Measure, mut reading: Reading) -> Reading {
    let mut ids = HashSet::new();
    for item in list {
        match read_kill(item, measure, &mut reading) {
            Ok(kill) if ids.insert(kill.id.clone()) => reading.kills.push(kill),
            Ok(_) => reading.fault(ReadFault::Kill(DropReason::Repeated)),
            Err(why) => reading.fault(ReadFault::Kill(why)),
        }
    }
    let older = reading.kills.len().saturating_sub(KILLS_MAX);
    if older > 0 {
        reading.kills.drain(..older);
        reading.fault(ReadFault::OlderKills(older));
    }
    reading
}

fn read_kill(item: &Value, measure: Measure, reading: &mut Reading) -> Result<MemoryKill, DropReason> {
    let object = item.as_object().ok_or(DropReason::NoObject)?;
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let id = text("id").filter(|id| measure.fits(id, ID_MAX)).ok_or(DropReason::Id)?;
    let at = text("at").filter(|at| measure.fits(at, AT_MAX) && millis_of(at).is_some()).ok_or(DropReason::At)?;
    let (peak, limit) = read_sizes(object.get("peak"), object.get("limit"), |fault| reading.fault(fault));
    let told = read_told(object.get("told"), measure, reading);
    Ok(MemoryKill { id: id.to_owned(), at: at.to_owned(), peak, limit, told })
}

/// The sizes of a kill or of a stream's event as far as they are believed: `(peak, limit)`. What is left out is told to
/// `fault`; a peak whose limit is not there goes with it (spec N-4, N-37).
pub fn read_sizes(
    peak: Option<&Value>,
    limit: Option<&Value>,
    mut fault: impl FnMut(ReadFault),
) -> (Option<String>, Option<String>) {
    let mut one = |value: Option<&Value>, field| {
        let value = value.filter(|value| !value.is_null())?;
        let size = value.as_str().filter(|text| is_guard_size(text));
        if size.is_none() {
            fault(ReadFault::Size(field));
        }
        size.map(str::to_owned)
    };
    let (peak, limit) = (one(peak, SizeField::Peak), one(limit, SizeField::Limit));
    (peak.filter(|_| limit.is_some()), limit)
}

fn read_told(value: Option<&Value>, measure: Measure, reading: &mut Reading) -> Vec<Told> {
    let list = match value {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(_) => {
            reading.fault(ReadFault::Told);
            return Vec::new();
        }
    };
    let mut told = Vec::new();
    for entry in list {
        let name = |key: &str| entry.get(key).and_then(Value::as_str).filter(|name| measure.fits(name, NAME_MAX));
        match (name("agent"), name("instanceId")) {
            (Some(agent), Some(iid)) => told.push(Told { agent: agent.to_owned(), instance_id: iid.to_owned() }),
            _ => reading.fault(ReadFault::Told),
        }
    }
    let older = told.len().saturating_sub(TOLD_MAX);
    if older > 0 {
        told.drain(..older);
        reading.fault(ReadFault::OlderTold(older));
    }
    told
}

/// Whether a text is a size as the guard writes it: `2Gi`, `1.9Gi`, `512Mi` (spec B-14), at most [`SIZE_MAX`] characters.
pub fn is_guard_size(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if text.len() > SIZE_MAX {
        return false;
    }
    if let Some(number) = text.strip_suffix("Mi") {
        return digits(number);
    }
    let Some(number) = text.strip_suffix("Gi") else { return false };
    match number.split_once('.') {
        Some((whole, tenth)) => digits(whole) && tenth.len() == 1 && digits(tenth),
        None => digits(number),
    }
}

/// A time in milliseconds since 1970; `None` when the text is no RFC 3339 time. A time in the future is a time.
pub fn millis_of(at: &str) -> Option<u64> {
    if !at.is_ascii() {
        return None;
    }
    let (utc, offset) = match at.strip_suffix('Z') {
        Some(_) => (at.to_owned(), 0),
        None => split_offset(at)?,
    };
    let since = humantime::parse_rfc3339(&utc).ok()?.duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).ok()?.checked_add_signed(-offset)
}

/// Splits `…+01:30` into the same text in UTC form and the offset in milliseconds.
fn split_offset(at: &str) -> Option<(String, i64)> {
    let (clock, offset) = at.split_at_checked(at.len().checked_sub("+00:00".len())?)?;
    let sign = match offset.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return None,
    };
    let (hours, minutes) = offset[1..].split_once(':')?;
    let (hours, minutes) = (two_digits(hours, 23)?, two_digits(minutes, 59)?);
    Some((format!("{clock}Z"), sign * (hours * 60 + minutes) * 60_000))
}

fn two_digits(text: &str, max: i64) -> Option<i64> {
    let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|value| digits && *value <= max)
}

#[cfg(test)]
mod tests;
