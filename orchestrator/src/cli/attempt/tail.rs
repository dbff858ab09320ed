//! The printed lines of Harnesses, read from their logs while they grow.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most bytes read of one log at a time.
const READ_MAX_BYTES: u64 = 256 << 10;

/// Logs of a folder.
pub struct Tail {
    folder: PathBuf,
    /// How far each is read.
    places: HashMap<PathBuf, u64>,
}

impl Tail {
    /// Of a folder; `from_now` passes over what is there already.
    pub fn of(folder: &Path, from_now: bool) -> Self {
        let mut tail = Self { folder: folder.to_owned(), places: HashMap::new() };
        if from_now {
            for path in tail.logs() {
                let length = std::fs::metadata(&path).map_or(0, |m| m.len());
                tail.places.insert(path, length);
            }
        }
        tail
    }

    fn logs(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "log")).collect()
    }

    /// What Agents said and did since the last call.
    pub fn lines(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for path in self.logs() {
            let from = self.places.get(&path).copied().unwrap_or(0);
            let (text, read) = read_lines(&path, from).unwrap_or_default();
            self.places.insert(path, from + read);
            found.extend(text.lines().filter_map(said));
        }
        found
    }
}

/// Whole lines after a place, and how many bytes they are.
fn read_lines(path: &Path, from: u64) -> std::io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX_BYTES).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    Ok((String::from_utf8_lossy(&bytes[..whole]).into_owned(), whole as u64))
}

/// `[agent] [kind] text` for people; other lines of the log are not for them.
fn said(line: &str) -> Option<String> {
    let (agent, rest) = line.strip_prefix('[')?.split_once("] [")?;
    let (kind, text) = rest.split_once("] ")?;
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(match kind {
        "prompt" => format!("  ▸ to {agent}: {text}"),
        "thinking" => format!("  ▸ {agent} thinks: {text}"),
        "text" => format!("  ▸ {agent}: {text}"),
        tool => format!(
            "  ▸ {agent} {}: {text}",
            tool.strip_prefix("mcp__jr2__").map_or(tool.to_owned(), |pick| format!("picks {pick}"))
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn whole_lines_of_agents_are_shown_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ws-a.log");
        std::fs::write(&path, "[coder] [text] old\n").unwrap();
        let mut tail = Tail::of(dir.path(), true);
        let mut log = File::options().append(true).open(&path).unwrap();
        log.write_all(b"2026 INFO x\n[coder] [bash] sh test.sh\n[coder] [mcp__jr2__finish] {}\n[coder] [text] ha")
            .unwrap();
        assert_eq!(tail.lines(), ["  ▸ coder bash: sh test.sh", "  ▸ coder picks finish: {}"]);
        log.write_all(b"lf\n").unwrap();
        assert_eq!((tail.lines().join(""), tail.lines().len()), ("  ▸ coder: half".to_owned(), 0));
    }
}
