//! The bare rate at which a disk makes an appended block durable: the ceiling of anything that saves before it acts.

use super::{BenchError, Times};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of one append: a page, about what a small run's row takes.
pub const BLOCK_BYTES: usize = 4096;

/// What a disk gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Appends made durable in a second, one after another.
    pub per_second: f64,
    /// How long each took.
    pub times: Times,
    /// Bytes of one append.
    pub block_bytes: usize,
}

/// Appends and syncs in `folder` for `length`; the file is removed at the end.
pub fn run(folder: &Path, length: Duration) -> Result<Report, BenchError> {
    let path = folder.join(format!(".jr2-fdatasync-{}", std::process::id()));
    let report = append(&path, length);
    let _ = std::fs::remove_file(&path);
    report
}

fn append(path: &Path, length: Duration) -> Result<Report, BenchError> {
    let mut file = File::create(path).map_err(BenchError::io(path.display().to_string()))?;
    let block = [0x5a; BLOCK_BYTES];
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < length {
        let one = Instant::now();
        file.write_all(&block).and_then(|()| file.sync_data()).map_err(BenchError::io("append and sync"))?;
        times.push(one.elapsed());
    }
    let per_second = times.len() as f64 / begun.elapsed().as_secs_f64();
    Ok(Report { per_second, times: Times::of(times), block_bytes: BLOCK_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_measures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let report = run(folder.path(), Duration::from_millis(20)).unwrap();
        assert!(report.times.count > 0 && report.per_second > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(run(Path::new("/no/such/folder"), Duration::ZERO).is_err());
    }
}
