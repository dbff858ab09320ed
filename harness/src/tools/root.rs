//! Paths beneath a root: the kernel refuses every way out, symbolic links and `..` included.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Longest path a model may give, in bytes: the kernel's own bound.
const PATH_MAX_BYTES: usize = 4096;
/// Times a resolution is repeated when a rename beside it makes the kernel unsure.
const RACE_TRIES: u32 = 16;

/// An open root.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
    given: PathBuf,
}

/// Opens a directory beneath `base` with no symbolic link on the way.
fn open_unlinked(base: &Path, inside: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    let start = rustix::fs::open(base, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(&start, inside, flags, Mode::empty(), resolve) {
        // No such call here: one step at a time, none of them a link.
        Err(Errno::NOSYS | Errno::PERM) => {}
        other => return other,
    }
    let mut at = start;
    for part in inside.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                at = rustix::fs::openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            }
            _ => return Err(Errno::XDEV),
        }
    }
    Ok(at)
}

impl Root {
    /// Opens a directory as a root. With a Sandbox it is reached from there without following any link: what lies
    /// between is in the Agent's hands, and a link in its place would lead out.
    pub fn open(given: &Path, sandbox: Option<&Path>) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| {
            format!("The working directory cannot be opened: {}: {error}.", given.display())
        };
        if let Some(sandbox) = sandbox {
            let base = sandbox.canonicalize().map_err(|e| fail(&e))?;
            let inside = given.strip_prefix(sandbox).or_else(|_| given.strip_prefix(&base));
            let inside = inside.map_err(|_| fail(&"it is outside the Sandbox"))?;
            let fd = open_unlinked(&base, inside).map_err(|e| match e {
                Errno::LOOP | Errno::XDEV => fail(&"a symbolic link stands in its path"),
                other => fail(&other),
            })?;
            return Ok(Self { fd, path: base.join(inside), given: given.to_owned() });
        }
        let path = given.canonicalize().map_err(|e| fail(&e))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| fail(&e))?;
        Ok(Self { fd, path, given: given.to_owned() })
    }

    /// The root without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A given path relative to the root: relative as it is, absolute when it starts with the root.
    pub fn relative(&self, given: &str) -> Result<PathBuf, String> {
        if given.len() > PATH_MAX_BYTES || given.contains('\0') {
            return Err("The path is no usable path.".to_owned());
        }
        let path = Path::new(given);
        let inside = if path.is_absolute() {
            path.strip_prefix(&self.path)
                .or_else(|_| path.strip_prefix(&self.given))
                .map_err(|_| self.outside(given))?
        } else {
            path
        };
        let plain: PathBuf = inside.components().filter(|c| *c != Component::CurDir).collect();
        Ok(if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain })
    }

    fn outside(&self, given: &str) -> String {
        format!("{given} is outside the working directory {}.", self.path.display())
    }

    /// Opens beneath the root.
    pub fn open_at(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..RACE_TRIES {
            match openat2(&self.fd, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                // No such call here (an old kernel, or a filter that hides it): check, then open.
                Err(Errno::NOSYS | Errno::PERM) => return self.open_checked(relative, flags),
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The weaker way: a rename between check and open could lead out.
    fn open_checked(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let full = self.path.join(relative);
        let real = full.canonicalize().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        if !real.starts_with(&self.path) {
            return Err(Errno::XDEV);
        }
        rustix::fs::open(&real, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens a regular file for reading. Pipes, devices and directories are refused without waiting for them.
    pub fn open_file(&self, relative: &Path) -> Result<(File, Stat), String> {
        // Without NONBLOCK, opening a pipe nobody writes would wait for ever.
        let fd = self
            .open_at(relative, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map_err(|e| self.explain(relative, e))?;
        let stat = fstat(&fd).map_err(|e| self.explain(relative, e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(fd), stat)),
            kind => Err(format!("{} is {}, not a file.", relative.display(), kind_name(kind))),
        }
    }

    /// The path of an existing thing with every symbolic link followed, relative to the root.
    pub fn follow(&self, relative: &Path) -> Result<Option<(PathBuf, Stat)>, String> {
        let fd = match self.open_at(relative, OFlags::PATH) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(|e| self.explain(relative, e))?,
        };
        let stat = fstat(&fd).map_err(|e| self.explain(relative, e))?;
        let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map_err(|e| format!("{} cannot be resolved: {e}.", relative.display()))?;
        let real = real.strip_prefix(&self.path).map_err(|_| self.outside(&relative.display().to_string()))?;
        Ok(Some((if real.as_os_str().is_empty() { PathBuf::from(".") } else { real.to_owned() }, stat)))
    }

    /// A sentence for the model.
    pub fn explain(&self, relative: &Path, error: Errno) -> String {
        let path = relative.display();
        match error {
            Errno::XDEV => self.outside(&path.to_string()),
            Errno::NOENT => format!("{path} does not exist."),
            Errno::NOTDIR => format!("{path}: a part of the path is a file, not a directory."),
            Errno::ACCESS => format!("{path}: permission denied."),
            Errno::LOOP => format!("{path}: too many symbolic links."),
            Errno::NXIO => format!("{path} is a pipe, socket or device, not a file."),
            Errno::ISDIR => format!("{path} is a directory, not a file."),
            other => format!("{path}: {other}."),
        }
    }
}

/// The words for a kind of file.
pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        _ => "something unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("in");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(inside.join("sub/a"), "a").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        symlink("sub/a", inside.join("good")).unwrap();
        symlink("../secret", inside.join("up")).unwrap();
        symlink(folder.path().join("secret"), inside.join("away")).unwrap();
        symlink("..", inside.join("sub/parent")).unwrap();
        symlink("loop", inside.join("loop")).unwrap();
        let root = Root::open(&inside, None).unwrap();
        (folder, root)
    }

    #[test]
    fn every_way_out_is_refused() {
        let (_folder, root) = tree();
        for path in ["../secret", "up", "away", "sub/parent/../secret", "sub/../../secret", "/etc/passwd"] {
            let text = root.relative(path).and_then(|p| root.open_file(&p).map(|_| ())).unwrap_err();
            assert!(text.contains("is outside the working directory"), "{path}: {text}");
        }
        assert!(root.relative("a\0b").is_err());
        let text = root.open_file(Path::new("loop")).unwrap_err();
        assert_eq!(text, "loop: too many symbolic links.");
    }

    #[test]
    fn ways_inside_are_taken() {
        let (_folder, root) = tree();
        let absolute = root.path().join("sub/a").display().to_string();
        for path in ["sub/a", "./sub//a", "good", "sub/parent/sub/a", "sub/../good", absolute.as_str()] {
            let relative = root.relative(path).unwrap();
            assert!(root.open_file(&relative).is_ok(), "{path}");
            assert_eq!(root.follow(&relative).unwrap().unwrap().0, Path::new("sub/a"), "{path}");
            assert!(root.open_checked(&relative, OFlags::RDONLY).is_ok(), "{path}");
        }
        assert_eq!(root.relative("").unwrap(), Path::new("."));
        assert_eq!(root.follow(Path::new("nope")).unwrap().map(|f| f.0), None);
        assert_eq!(root.open_checked(Path::new("up"), OFlags::RDONLY).unwrap_err(), Errno::XDEV);
    }

    #[test]
    fn a_root_whose_place_was_taken_by_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (sandbox, secret) = (folder.path().join("sandbox"), folder.path().join("secret"));
        std::fs::create_dir_all(sandbox.join("work/slot/branch")).unwrap();
        std::fs::create_dir(&secret).unwrap();
        let cwd = sandbox.join("work/slot/branch");
        Root::open(&cwd, Some(&sandbox)).unwrap();
        std::fs::rename(&cwd, sandbox.join("work/slot/moved")).unwrap();
        symlink(&secret, &cwd).unwrap();
        let refused = Root::open(&cwd, Some(&sandbox)).unwrap_err();
        assert!(refused.contains("symbolic link"), "{refused}");
        std::fs::remove_file(&cwd).unwrap();
        std::fs::rename(sandbox.join("work/slot"), sandbox.join("work/other")).unwrap();
        symlink(&secret, sandbox.join("work/slot")).unwrap();
        std::fs::create_dir(secret.join("branch")).unwrap();
        assert!(Root::open(&cwd, Some(&sandbox)).is_err());
        assert!(Root::open(&secret, Some(&sandbox)).unwrap_err().contains("outside the Sandbox"));
    }
}
