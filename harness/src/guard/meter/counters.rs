//! A kernel file with counters, held open and read again and again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Longest counter file read in bytes: the kernel's are under 4 KiB.
const FILE_MAX_BYTES: usize = 16 << 10;

/// The file. Its buffer is there from the start: a read when memory is short asks for none.
#[derive(Debug)]
pub struct Counters {
    file: File,
    buffer: Vec<u8>,
}

impl Counters {
    /// Opens it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: vec![0; FILE_MAX_BYTES] })
    }

    /// What it says now.
    fn read(&mut self) -> io::Result<&str> {
        let mut length = 0;
        while length < self.buffer.len() {
            match self.file.read_at(&mut self.buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        std::str::from_utf8(&self.buffer[..length]).map_err(io::Error::other)
    }

    /// A file of one number; `max` is none.
    pub fn number(&mut self) -> io::Result<Option<u64>> {
        let text = self.read()?.trim();
        if text == "max" {
            return Ok(None);
        }
        text.parse().map(Some).map_err(io::Error::other)
    }

    /// The sum of these `key value` lines; `None` when none is there. Other keys pass (public fault A15).
    pub fn sum(&mut self, keys: &[&str]) -> io::Result<Option<u64>> {
        let mut sum: Option<u64> = None;
        for line in self.read()?.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            if keys.contains(&name) {
                let value: u64 = value.trim().parse().map_err(io::Error::other)?;
                sum = Some(sum.unwrap_or(0).saturating_add(value));
            }
        }
        Ok(sum)
    }
}

impl AsFd for Counters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
