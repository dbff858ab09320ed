//! The kept file, beside the conversations: read once at the start, rewritten whole at each change.
//!
//! A rewrite goes to a new file that takes the old one's name, so the list on disk is always a whole one; with the bounds of
//! the list it is never larger than what a start reads back.

use jr2_shared::memory_kills::FILE_TAIL_MAX_BYTES;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Its name in the conversations' folder. The dot keeps it apart from every Agent's folder.
pub const FILE_NAME: &str = "memory-kills.jsonl";
/// Where the next one is written.
const NEXT_NAME: &str = "memory-kills.jsonl.next";

/// The end of the file, at most [`FILE_TAIL_MAX_BYTES`]; `None` when there is none. Anything but a plain file is an error: the
/// Agent's uid can put a pipe or a link there.
pub fn read_tail(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    // Without waiting: opening a pipe that nobody writes to would never come back.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(folder.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let start = meta.len().saturating_sub(FILE_TAIL_MAX_BYTES as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(FILE_TAIL_MAX_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces the file by `text`; it survives the loss of power when this returns. Blocking.
pub fn replace(folder: &Path, text: &str) -> io::Result<()> {
    let next = folder.join(NEXT_NAME);
    match std::fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file: nothing the Agent's uid put there is written through.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&next, folder.join(FILE_NAME))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn what_was_written_last_is_read_and_no_more_than_the_end() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_tail(dir.path()).unwrap(), None);
        std::fs::write(dir.path().join(NEXT_NAME), "left by a crash").unwrap();
        replace(dir.path(), "one\n").unwrap();
        replace(dir.path(), "two\n").unwrap();
        assert_eq!(read_tail(dir.path()).unwrap().unwrap(), b"two\n");
        assert!(!dir.path().join(NEXT_NAME).exists());
        std::fs::write(dir.path().join(FILE_NAME), [vec![b'x'; FILE_TAIL_MAX_BYTES], b"end".to_vec()].concat())
            .unwrap();
        let tail = read_tail(dir.path()).unwrap().unwrap();
        assert_eq!((tail.len(), tail.ends_with(b"xend")), (FILE_TAIL_MAX_BYTES, true));
    }

    #[test]
    fn m_18_a_pipe_a_link_or_a_folder_is_an_error_and_no_hang() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a system call on a C string that lives.
        #[allow(unsafe_code)]
        let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
        assert_eq!(made, 0);
        assert!(read_tail(dir.path()).is_err());
        replace(dir.path(), "a\n").unwrap();
        assert_eq!(read_tail(dir.path()).unwrap().unwrap(), b"a\n", "a rewrite takes its place");
        let secret = dir.path().join("elsewhere");
        std::fs::write(&secret, "mine").unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(read_tail(dir.path()).is_err());
        replace(dir.path(), "b\n").unwrap();
        assert_eq!(std::fs::read(&secret).unwrap(), b"mine", "a link is replaced, never written through");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_tail(dir.path()).is_err() && replace(dir.path(), "c\n").is_err());
    }
}
