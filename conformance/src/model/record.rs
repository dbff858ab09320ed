//! What was asked of the scripted model: in memory for tests, and line by line in a file that survives `kill -9`.

use serde::Serialize;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Most requests kept in memory; the oldest go first. The file keeps all.
pub const KEPT_REQUESTS: usize = 4_096;
/// Most bytes of bodies kept in memory: a long conversation is sent again at each step, so it grows with its square.
pub const KEPT_BODY_BYTES: usize = 64 << 20;
/// Longest body written to the file; longer ones are cut and marked.
pub const FILE_BODY_MAX_BYTES: usize = 1 << 20;

/// One request and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// Its place, from 1.
    pub seq: u64,
    /// HTTP method.
    pub method: String,
    /// Path.
    pub path: String,
    /// Headers with lower-case names, in order.
    pub headers: Vec<(String, String)>,
    /// The body's JSON; null when it is none.
    pub body: Value,
    /// The body as it came.
    #[serde(skip)]
    pub body_text: String,
    /// The conversation's key.
    pub conversation: String,
    /// The rule that answered; `None` when no rule did.
    pub rule: Option<String>,
    /// The status of the answer.
    pub status: u16,
    /// What a real server would refuse in the request.
    pub problems: Vec<String>,
    /// Why the scripted model itself refused the request.
    pub refusal: Option<String>,
}

impl RecordedRequest {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The messages of the request.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The exact bytes of the tools block as they were sent, for tests of byte stability.
    pub fn tools_text(&self) -> Option<&str> {
        #[derive(serde::Deserialize)]
        struct Body<'a> {
            #[serde(borrow)]
            tools: Option<&'a serde_json::value::RawValue>,
        }
        serde_json::from_str::<Body<'_>>(&self.body_text).ok()?.tools.map(|raw| raw.get())
    }

    /// The system message.
    pub fn system(&self) -> Option<&str> {
        self.messages().iter().find(|m| m["role"] == "system").and_then(|m| m["content"].as_str())
    }
}

/// Keeps requests.
#[derive(Debug, Default)]
pub struct Recorder {
    kept: VecDeque<RecordedRequest>,
    kept_bytes: usize,
    total: u64,
    file: Option<File>,
}

impl Recorder {
    /// Also appends one JSON line per request to a file, each synced before its answer leaves.
    pub fn to_file(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self { file: Some(file), ..Self::default() })
    }

    /// Records a request and gives it its place. An error of the file is returned after the memory has it.
    pub fn add(&mut self, mut request: RecordedRequest) -> std::io::Result<()> {
        self.total += 1;
        request.seq = self.total;
        let line = self.file.is_some().then(|| line(&request));
        self.kept_bytes += request.body_text.len();
        self.kept.push_back(request);
        while self.kept.len() > KEPT_REQUESTS || (self.kept_bytes > KEPT_BODY_BYTES && self.kept.len() > 1) {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |old| old.body_text.len());
        }
        if let (Some(file), Some(line)) = (&mut self.file, line) {
            // One write, so that a kill leaves whole lines.
            file.write_all(line.as_bytes())?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// What memory holds, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.kept.iter().cloned().collect()
    }

    /// How many requests there were.
    pub fn total(&self) -> u64 {
        self.total
    }
}

fn line(request: &RecordedRequest) -> String {
    let mut value = serde_json::to_value(request).unwrap_or_default();
    if request.body_text.len() > FILE_BODY_MAX_BYTES {
        let end = request.body_text.floor_char_boundary(FILE_BODY_MAX_BYTES);
        value["body"] = Value::String(request.body_text[..end].to_owned());
        value["cut"] = Value::Bool(true);
    }
    format!("{value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> RecordedRequest {
        RecordedRequest { body_text: "x".repeat(bytes), ..RecordedRequest::default() }
    }

    #[test]
    fn memory_is_bounded_by_count_and_by_bytes() {
        let mut recorder = Recorder::default();
        for _ in 0..KEPT_REQUESTS + 5 {
            recorder.add(request(1)).unwrap();
        }
        assert_eq!((recorder.requests().len(), recorder.requests()[0].seq), (KEPT_REQUESTS, 6));
        recorder.add(request(KEPT_BODY_BYTES)).unwrap();
        assert_eq!(recorder.requests().len(), 1);
        assert_eq!(recorder.total(), KEPT_REQUESTS as u64 + 6);
    }

    #[test]
    fn the_file_has_a_line_per_request_and_goes_on_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.jsonl");
        Recorder::to_file(&path).unwrap().add(request(1)).unwrap();
        Recorder::to_file(&path).unwrap().add(request(FILE_BODY_MAX_BYTES + 1)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["cut"], true);
        assert_eq!(lines[1]["body"].as_str().unwrap().len(), FILE_BODY_MAX_BYTES);
    }

    #[test]
    fn the_tools_block_is_given_byte_for_byte() {
        let request = RecordedRequest { body_text: r#"{"tools": [ {"a":1.0} ]}"#.into(), ..RecordedRequest::default() };
        assert_eq!(request.tools_text(), Some(r#"[ {"a":1.0} ]"#));
    }
}
