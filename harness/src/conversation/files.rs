//! The files of the conversations folder, opened so that nothing put there by somebody else leads out of it or is waited for.
//!
//! Locally the folder lies in the Sandbox, so an Agent's commands may have been at it (spec H-13): a link, a pipe or a
//! device stands where a record belongs, and the Harness, which is not fenced, must neither follow nor wait.

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, open, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Mode of new folders and files before the process's mask: one user's own.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// A folder that was freed and is being removed.
const FREED: &str = "freed";
/// A folder that was in the way of a new conversation.
const UNREADABLE: &str = "unreadable";

/// Opens the folder `inside` of `root` one step at a time, none of them a link; with `make`, missing ones are made.
pub(super) fn folder(root: &Path, inside: &Path, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = open(root, flags, Mode::empty())?;
    for part in inside.components() {
        let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        if make {
            match mkdirat(&at, name, Mode::from_raw_mode(FOLDER_MODE)) {
                Err(Errno::EXIST) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        at = openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(at)
}

/// Opens a regular file of a folder; anything else is refused without waiting for it.
pub(super) fn file(folder: &OwnedFd, name: &str, flags: OFlags) -> io::Result<File> {
    // Without NONBLOCK, opening a pipe nobody writes would wait for ever.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(folder, name, flags, Mode::from_raw_mode(FILE_MODE))?;
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other(format!("{name} is no file")));
    }
    Ok(File::from(fd))
}

/// A whole file of at most `most` bytes; `None` when it is larger.
pub(super) fn read(folder: &OwnedFd, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file(folder, name, OFlags::RDONLY)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Whether this process or the machine has run out of something: no word about the file itself.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

/// Renames what stands at `path`, whatever it is, so that its place is free; the new name holds a dot, so nobody takes it
/// for a conversation.
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    put_away(path, UNREADABLE).map(|_| ())
}

/// Renames a freed folder, in one step, so that a crash while it is removed leaves no half of a record; where it lies now.
pub(super) fn set_freed(path: &Path) -> io::Result<Option<PathBuf>> {
    put_away(path, FREED)
}

/// Whether a folder's name says that its removal had begun.
pub(super) fn is_freed(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, rest)| rest.split_once('-').is_some_and(|(word, _)| word == FREED))
}

fn put_away(path: &Path, word: &str) -> io::Result<Option<PathBuf>> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    for n in 1..=u32::MAX {
        let away = PathBuf::from(format!("{}.{word}-{n}", path.display()));
        if std::fs::symlink_metadata(&away).is_err() {
            return std::fs::rename(path, &away).map(|()| Some(away));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_pipes_and_devices_are_neither_followed_nor_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), root.path().join("link")).unwrap();
        assert!(folder(root.path(), Path::new("link"), false).is_err());
        assert!(folder(root.path(), Path::new("link/x"), true).is_err());
        assert!(folder(root.path(), Path::new("../x"), true).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was made there");
        let inside = folder(root.path(), Path::new("a/b"), true).unwrap();
        let at = root.path().join("a/b");
        symlink(outside.path().join("secret"), at.join("link")).unwrap();
        symlink("/dev/zero", at.join("zero")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at.join("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::create_dir(at.join("folder")).unwrap();
        for name in ["link", "zero", "pipe", "folder", "none"] {
            assert!(read(&inside, name, 9).is_err(), "{name}");
        }
        std::fs::write(at.join("file"), "123").unwrap();
        assert_eq!(read(&inside, "file", 3).unwrap().as_deref(), Some(&b"123"[..]));
        assert_eq!(read(&inside, "file", 2).unwrap(), None);
    }

    #[test]
    fn what_is_put_away_is_known_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r%2Fa");
        for n in 1..3 {
            std::fs::create_dir(&path).unwrap();
            let away = set_freed(&path).unwrap().unwrap();
            assert_eq!(away.file_name().unwrap().to_str().unwrap(), format!("r%2Fa.freed-{n}"));
            assert!(is_freed(&format!("r%2Fa.freed-{n}")));
        }
        symlink("nowhere", &path).unwrap();
        set_aside(&path).unwrap();
        assert!(root.path().join("r%2Fa.unreadable-1").is_symlink() && !path.is_symlink());
        assert!(!is_freed("r%2Fa.unreadable-1") && !is_freed("freed-1") && !is_freed("a.b"));
        assert_eq!(set_freed(&path).unwrap(), None);
    }
}
