//! Where things lie on disk: one folder per Sandbox that its Agent may see, everything else outside it.

use sha2::{Digest, Sha256};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest path of a Unix socket in bytes (`sun_path` holds 108 with its end).
const SOCKET_PATH_MAX_BYTES: usize = 107;
/// Hex characters that stand for a Sandbox's name in a socket path; 48 bits keep names of one Instance apart.
const HASH_CHARS: usize = 12;
/// The longer of the two socket names.
const CUSTODIAN_SOCKET: &str = "custodian.sock";
/// Records which folder holds the sockets, for people and for the next start.
const RUNTIME_FILE: &str = "runtime-dir";
/// Mode of every folder made here.
const PRIVATE: u32 = 0o700;

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A folder could not be made or read.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// The short folder for sockets is somebody else's.
    #[error("{0} is not a private folder of this user: remove it, or use a state folder with a shorter path")]
    NotOurs(PathBuf),
}

/// The state folder.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `.jr2`, absolute.
    pub state: PathBuf,
    sockets: PathBuf,
}

/// Where one Sandbox lies.
#[derive(Clone, Debug)]
pub struct Place {
    /// The Sandbox directory: all an Agent may write to.
    pub dir: PathBuf,
    /// Slots.
    pub work: PathBuf,
    /// Conversations.
    pub conversations: PathBuf,
    /// `TMPDIR`.
    pub tmp: PathBuf,
    /// `HOME`.
    pub home: PathBuf,
    /// The folder of the two sockets.
    pub sockets: PathBuf,
    /// The Custodian listens here.
    pub custodian: PathBuf,
    /// The Harness listens here.
    pub harness: PathBuf,
    /// What is remembered about it.
    pub record: PathBuf,
    /// The Harness's output.
    pub log: PathBuf,
}

impl Layout {
    /// Makes the state folder's own folders, all private, and finds a place for sockets that is short enough.
    pub fn open(state: &Path) -> Result<Self, LayoutError> {
        private_dir(state)?;
        let state = state.canonicalize().map_err(|error| LayoutError::Io { path: state.into(), error })?;
        for name in ["workspaces", "sandboxes", "logs", "branches", "scratch"] {
            private_dir(&state.join(name))?;
        }
        let near = state.join("sockets");
        let sockets = if fits(&near) { near } else { runtime_dir(&state)? };
        private_dir(&sockets)?;
        Ok(Self { state, sockets })
    }

    /// Where the Sandbox of this name lies.
    pub fn place(&self, name: &str) -> Place {
        self.place_in(name, self.state.join("workspaces").join(name))
    }

    /// Where the Instance Harness lies.
    pub fn instance(&self, name: &str) -> Place {
        self.place_in(name, self.state.join("instance-harness"))
    }

    /// A folder for repositories that live for one save only.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.state.join("scratch").join(name)
    }

    /// Where branches of sources that are not local are kept.
    pub fn branches(&self) -> PathBuf {
        self.state.join("branches")
    }

    /// The folder of the records.
    pub fn records(&self) -> PathBuf {
        self.state.join("sandboxes")
    }

    /// A word that tells this state folder from another one.
    pub fn owner_word(&self) -> String {
        short_hash(self.state.as_os_str().as_encoded_bytes())
    }

    fn place_in(&self, name: &str, dir: PathBuf) -> Place {
        let sockets = self.sockets.join(short_hash(name.as_bytes()));
        Place {
            work: dir.join("work"),
            conversations: dir.join("conversations"),
            tmp: dir.join("tmp"),
            home: dir.join("home"),
            custodian: sockets.join(CUSTODIAN_SOCKET),
            harness: sockets.join("harness.sock"),
            record: self.records().join(format!("{name}.json")),
            log: self.state.join("logs").join(format!("{name}.log")),
            dir,
            sockets,
        }
    }
}

impl Place {
    /// Makes the folders of the Sandbox and of its sockets.
    pub fn make(&self) -> Result<(), LayoutError> {
        for dir in [&self.dir, &self.work, &self.conversations, &self.tmp, &self.home, &self.sockets] {
            private_dir(dir)?;
        }
        Ok(())
    }

    /// The Sandbox directory is still there.
    pub fn is_there(&self) -> bool {
        [&self.dir, &self.work].into_iter().all(|dir| std::fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir()))
    }
}

/// Makes a folder of mode 0700 with its parents, and takes others' rights off one that is there.
pub fn private_dir(path: &Path) -> Result<(), LayoutError> {
    let make = || {
        std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(PRIVATE))?;
        }
        Ok(())
    };
    make().map_err(|error| LayoutError::Io { path: path.into(), error })
}

fn fits(sockets: &Path) -> bool {
    // Two separators: before the hash and before the socket's name.
    sockets.as_os_str().len() + HASH_CHARS + CUSTODIAN_SOCKET.len() + 2 <= SOCKET_PATH_MAX_BYTES
}

/// A short private folder that depends on the state folder alone, so that a restart finds the same one.
fn runtime_dir(state: &Path) -> Result<PathBuf, LayoutError> {
    let uid = rustix::process::getuid().as_raw();
    let path = PathBuf::from(format!("/tmp/jr2-{uid}-{}", short_hash(state.as_os_str().as_encoded_bytes())));
    let io = |error| LayoutError::Io { path: path.clone(), error };
    match std::fs::DirBuilder::new().mode(PRIVATE).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io(error)),
    }
    let found = std::fs::symlink_metadata(&path).map_err(io)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o077 != 0 {
        return Err(LayoutError::NotOurs(path));
    }
    let file = state.join(RUNTIME_FILE);
    std::fs::write(&file, format!("{}\n", path.display())).map_err(|error| LayoutError::Io { path: file, error })?;
    Ok(path)
}

/// The first hex characters of a sha256.
fn short_hash(bytes: &[u8]) -> String {
    let mut text = jr2_shared::ids::hex(&Sha256::digest(bytes));
    text.truncate(HASH_CHARS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_state_folder_gets_short_sockets_that_stay_the_same() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("d".repeat(90)).join(".jr2");
        let first = Layout::open(&deep).unwrap();
        let place = first.place("ws-a");
        assert!(place.custodian.as_os_str().len() <= SOCKET_PATH_MAX_BYTES);
        assert!(place.sockets.starts_with("/tmp"));
        assert_eq!(Layout::open(&deep).unwrap().place("ws-a").custodian, place.custodian);
        assert!(std::fs::read_to_string(first.state.join(RUNTIME_FILE)).unwrap().starts_with("/tmp/jr2-"));
        let runtime = first.sockets.clone();
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(Layout::open(&deep), Err(LayoutError::NotOurs(_))));
        std::fs::remove_dir_all(runtime).unwrap();
    }

    #[test]
    fn the_state_folder_is_private_even_if_it_was_not() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join(".jr2");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
        let layout = Layout::open(&state).unwrap();
        assert_eq!(std::fs::metadata(&layout.state).unwrap().mode() & 0o777, PRIVATE);
        let place = layout.place("ws-a");
        place.make().unwrap();
        assert!(place.is_there());
        assert!(!place.sockets.starts_with(&place.dir));
        std::fs::remove_dir_all(&place.work).unwrap();
        assert!(!place.is_there());
    }
}
