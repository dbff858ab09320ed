//! `read`: a part of a text file with line numbers. Any size, any content, never a wait.

use super::Job;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};

/// Lines of a call without `limit`.
pub(super) const LINES_DEFAULT: usize = 2_000;
/// Most bytes of output: about 12,000 tokens.
pub(super) const OUTPUT_MAX_BYTES: usize = 48 << 10;
/// Most bytes of one line that are shown.
const LINE_MAX_BYTES: usize = 2_000;
/// Most bytes that are read to find `offset`: about a second of disk.
const SCAN_MAX_BYTES: u64 = 512 << 20;
/// Bytes at the start that are looked at to tell text from binary.
const PROBE_BYTES: usize = 8 << 10;

#[derive(Debug, Deserialize)]
pub(super) struct Read {
    #[serde(alias = "file_path", alias = "filePath", alias = "file")]
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// One pass over one line.
struct Line {
    shown: Vec<u8>,
    bytes: u64,
    /// Whether anything was there at all.
    any: bool,
}

pub(super) fn run(job: &Job, args: Read) -> Result<String, String> {
    let relative = job.root.relative(&args.path)?;
    let (file, stat) = job.root.open_file(&relative)?;
    let name = relative.display();
    let io = |error: std::io::Error| format!("{name} cannot be read: {error}.");
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let start = reader.fill_buf().map_err(io)?;
    if start.is_empty() {
        return Ok(format!("({name} is empty)"));
    }
    if start[..start.len().min(PROBE_BYTES)].contains(&0) {
        return Err(format!("{name} is a binary file of {} bytes; use bash to look into it.", stat.st_size));
    }

    let first = args.offset.unwrap_or(1).max(1);
    let limit = args.limit.unwrap_or(LINES_DEFAULT).max(1);
    let (mut number, mut scanned, mut out, mut shown) = (1, 0u64, String::new(), 0);
    loop {
        let wanted = number >= first;
        if wanted && (shown == limit || out.len() >= OUTPUT_MAX_BYTES) {
            if !reader.fill_buf().map_err(io)?.is_empty() {
                let _ = write!(out, "… the file goes on; continue with offset {number}");
            }
            return Ok(out);
        }
        if scanned > SCAN_MAX_BYTES {
            return Err(format!("{name}: line {first} is beyond the first {} MiB; use bash.", SCAN_MAX_BYTES >> 20));
        }
        let line = next_line(job, &mut reader, wanted, SCAN_MAX_BYTES).map_err(|e| e.unwrap_or_else(io))?;
        if !line.any {
            break;
        }
        scanned += line.bytes;
        if wanted {
            let text = String::from_utf8_lossy(&line.shown);
            let _ = write!(out, "{number:>6}\t{text}");
            if line.bytes > line.shown.len() as u64 + 2 {
                let _ = write!(out, " … {} bytes of this line left out", line.bytes - line.shown.len() as u64);
            }
            out.push('\n');
            shown += 1;
        }
        number += 1;
    }
    if shown == 0 {
        return Err(format!("{name} has {} lines; offset {first} is beyond its end.", number - 1));
    }
    Ok(out)
}

/// An error of the tool, or of the disk.
enum Fault {
    Said(String),
    Io(std::io::Error),
}

impl Fault {
    fn unwrap_or_else(self, io: impl Fn(std::io::Error) -> String) -> String {
        match self {
            Fault::Said(text) => text,
            Fault::Io(error) => io(error),
        }
    }
}

/// Reads to the next line end, keeping at most [`LINE_MAX_BYTES`] and stopping after `most` bytes.
fn next_line(job: &Job, reader: &mut impl BufRead, keep: bool, most: u64) -> Result<Line, Fault> {
    let mut line = Line { shown: Vec::new(), bytes: 0, any: false };
    loop {
        job.go_on().map_err(Fault::Said)?;
        let buffer = reader.fill_buf().map_err(Fault::Io)?;
        if buffer.is_empty() {
            break;
        }
        line.any = true;
        let end = buffer.iter().position(|b| *b == b'\n');
        let piece = &buffer[..end.unwrap_or(buffer.len())];
        if keep {
            let room = LINE_MAX_BYTES - line.shown.len();
            line.shown.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let used = piece.len() + usize::from(end.is_some());
        line.bytes += used as u64;
        reader.consume(used);
        if end.is_some() || line.bytes > most {
            break;
        }
    }
    if line.shown.last() == Some(&b'\r') {
        line.shown.pop();
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use crate::tools::testing::Bench;
    use serde_json::json;

    #[tokio::test]
    async fn lines_offsets_and_limits() {
        let bench = Bench::new();
        bench.file("a", "one\r\ntwo\nthree");
        assert_eq!(bench.ok("read", json!({"path": "a"})).await, "     1\tone\n     2\ttwo\n     3\tthree\n");
        assert_eq!(
            bench.ok("read", json!({"path": "a", "offset": 2, "limit": 1})).await,
            "     2\ttwo\n… the file goes on; continue with offset 3"
        );
        assert_eq!(
            bench.err("read", json!({"path": "a", "offset": 9})).await,
            "a has 3 lines; offset 9 is beyond its end."
        );
        bench.file("empty", "");
        assert_eq!(bench.ok("read", json!({"path": "empty"})).await, "(empty is empty)");
    }

    #[tokio::test]
    async fn outputs_are_bounded() {
        let bench = Bench::new();
        bench.file("long", &format!("{}\nend\n", "é".repeat(5_000)));
        let text = bench.ok("read", json!({"path": "long"})).await;
        assert!(text.contains("… 8001 bytes of this line left out\n     2\tend"), "{}", &text[2_000..]);
        bench.file("many", &format!("{}\n", "x".repeat(99)).repeat(5_000));
        let text = bench.ok("read", json!({"path": "many"})).await;
        assert!(text.len() < super::OUTPUT_MAX_BYTES + 3_000 && text.contains("… the file goes on"), "{}", text.len());
    }

    #[tokio::test]
    async fn odd_files_are_refused_without_a_wait() {
        let bench = Bench::new();
        bench.file("bin", "a\0b");
        assert_eq!(
            bench.err("read", json!({"path": "bin"})).await,
            "bin is a binary file of 3 bytes; use bash to look into it."
        );
        let fifo = bench.path("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(bench.err("read", json!({"path": "fifo"})).await, "fifo is a named pipe, not a file.");
        assert_eq!(bench.err("read", json!({"path": "."})).await, ". is a directory, not a file.");
        std::os::unix::fs::symlink("/dev/zero", bench.path("zero")).unwrap();
        assert!(bench.err("read", json!({"path": "zero"})).await.contains("outside the working directory"));
        assert!(bench.err("read", json!({"path": "/dev/zero"})).await.contains("outside the working directory"));
    }

    #[tokio::test]
    async fn a_huge_file_costs_little() {
        let bench = Bench::new();
        let file = std::fs::File::create(bench.path("huge")).unwrap();
        std::io::Write::write_all(&mut &file, b"head\ntail").unwrap();
        file.set_len(2 << 30).unwrap();
        // Zero bytes near the start make it binary; far from it, an endless line.
        assert!(bench.err("read", json!({"path": "huge"})).await.contains("2147483648 bytes"));
        bench.file("late", &"x\n".repeat(8_192));
        std::fs::OpenOptions::new().write(true).open(bench.path("late")).unwrap().set_len(2 << 30).unwrap();
        let text = bench.ok("read", json!({"path": "late", "offset": 8_192, "limit": 2})).await;
        assert!(text.starts_with("  8192\tx\n  8193\t"), "{:?}", &text[..40]);
        assert!(text.len() < 5_000);
        assert!(bench.err("read", json!({"path": "late", "offset": 8_195})).await.contains("beyond the first 512 MiB"));
    }
}
