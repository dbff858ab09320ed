//! The state folder: private, with the Instance token and where the present Orchestrator answers.

use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The Instance token, below the state folder.
const TOKEN_FILE: &str = "token";
/// Where the present Orchestrator answers, below the state folder.
const SERVER_FILE: &str = "server.json";
/// The port that the last Orchestrator took, below the state folder.
const PORT_FILE: &str = "port";
/// Random bytes of the token (spec section 15).
const TOKEN_BYTES: usize = 32;
/// Longest file read here in bytes: a token or an address.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct StateError {
    /// Which file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub error: std::io::Error,
}

/// Where an Orchestrator answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its URL.
    pub url: String,
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
}

/// The state folder of an Instance.
#[derive(Clone, Debug)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Makes the folder with mode 0700, and takes others' rights away from one that is there.
    pub fn make(path: &Path) -> Result<Self, StateError> {
        let fail = |error| StateError { path: path.to_owned(), error };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail)?;
        let mode = std::fs::metadata(path).map_err(fail)?.permissions().mode();
        if mode & 0o077 != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(fail)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The folder as it is, which may not be there.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The Instance token, when it was made.
    pub fn token(&self) -> Option<String> {
        let text = read(&self.path.join(TOKEN_FILE))?;
        Some(text.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// The Instance token; made once.
    pub fn make_token(&self) -> Result<String, StateError> {
        if let Some(token) = self.token() {
            return Ok(token);
        }
        let path = self.path.join(TOKEN_FILE);
        let fail = |error| StateError { path: path.clone(), error };
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|e| fail(std::io::Error::other(e.to_string())))?;
        let token = jr2_shared::harness::base64url(&bytes);
        self.replace(TOKEN_FILE, token.as_bytes())?;
        Ok(token)
    }

    /// Says where this process answers.
    pub fn announce(&self, url: &str) -> Result<(), StateError> {
        let announcement = Announcement {
            url: url.to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        self.replace(SERVER_FILE, &serde_json::to_vec(&announcement).unwrap_or_default())
    }

    /// Where an Orchestrator said it answers.
    pub fn announced(&self) -> Option<Announcement> {
        serde_json::from_str(&read(&self.path.join(SERVER_FILE))?).ok()
    }

    /// The port that the last Orchestrator took: Sandboxes that outlived it are fenced from that one (decision 46).
    pub fn last_port(&self) -> Option<u16> {
        read(&self.path.join(PORT_FILE))?.trim().parse().ok()
    }

    /// Remembers the port that this process took.
    pub fn remember_port(&self, port: u16) -> Result<(), StateError> {
        if self.last_port() == Some(port) {
            return Ok(());
        }
        self.replace(PORT_FILE, port.to_string().as_bytes())
    }

    /// Takes this process's word back.
    pub fn retract(&self) {
        if self.announced().is_some_and(|a| a.pid == std::process::id()) {
            // Left behind it is harmless: readers ask the address before they believe it.
            let _ = std::fs::remove_file(self.path.join(SERVER_FILE));
        }
    }

    /// Replaces a private file at once.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let part = self.path.join(format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, self.path.join(name))
        };
        write().map_err(|error| StateError { path: self.path.join(name), error })
    }
}

fn read(path: &Path) -> Option<String> {
    let short = std::fs::metadata(path).ok().is_some_and(|m| m.len() <= FILE_MAX_BYTES);
    short.then(|| std::fs::read_to_string(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_and_the_token_are_private_and_the_token_is_made_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/.jr2");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let state = StateDir::make(&path).unwrap();
        let token = state.make_token().unwrap();
        assert_eq!((token.len(), state.make_token().unwrap() == token), (43, true));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("token"))), (0o700, 0o600));
        assert_eq!(state.last_port(), None);
        state.remember_port(4_100).unwrap();
        assert_eq!(state.last_port(), Some(4_100));
        state.announce("http://x").unwrap();
        assert_eq!(state.announced().unwrap().url, "http://x");
        state.retract();
        assert!(state.announced().is_none());
    }

    #[test]
    fn a_file_in_the_folder_s_place_is_said_with_its_path() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(".jr2");
        std::fs::write(&path, "").unwrap();
        assert!(StateDir::make(&path).unwrap_err().to_string().contains(".jr2"));
    }
}
