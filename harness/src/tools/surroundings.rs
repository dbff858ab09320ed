//! What surrounds a root: the Sandbox it lies in, and what a command may see of the machine.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `JR2_SANDBOX_DIR` | the Sandbox: everything beneath it is the Agent's; home and temporary folder lie in it |
//! | `JR2_TOOLCHAINS` | colon list of folders that commands may read and execute |
//! | `JR2_PASS_ENV` | colon list of variables that commands get as they are |
//! | `JR2_DENY_TCP_PORTS` | comma list of TCP ports no command may connect to; set = all others stay open |
//! | `JR2_ALLOW_TCP_PORTS` | comma list: when set, commands connect to these ports only, less the denied ones |
//!
//! TCP ports are denied by number whatever the address. Neither list limits UDP or listening.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Variables that pass from the Harness to commands: none of them is a secret.
const PASSED: &[&str] = &[
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TERM",
    "TZ",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];
/// Proxies pass too, unless their URL carries a login.
const PROXIES: &[&str] =
    &["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"];
/// `PATH` when the Harness has none.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Who commits when nobody says otherwise; a repository's own setting wins.
const GIT_CONFIG: &str = "[user]\n\tname = jr2 agent\n\temail = agent@jr2.invalid\n";

/// The surroundings of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The Sandbox, when there is one.
    pub sandbox: Option<PathBuf>,
    /// Where the command's home and temporary folder lie.
    pub scratch: PathBuf,
    /// Folders that may be read and executed.
    pub toolchains: Vec<PathBuf>,
    /// TCP ports nobody may connect to.
    pub denied_ports: Vec<u16>,
    /// When given, the only ports to connect to.
    pub allowed_ports: Option<Vec<u16>>,
    /// The command's whole environment, beside home and temporary folder.
    pub environment: Vec<(String, String)>,
}

impl Surroundings {
    /// Reads them from an environment.
    pub fn from_env(root: &Path, get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let sandbox = get("JR2_SANDBOX_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let scratch = sandbox.clone().unwrap_or_else(|| scratch_of(root));
        let list = |name: &str| -> Vec<String> {
            get(name).unwrap_or_default().split(':').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let ports = |name: &str| {
            get(name)
                .map(|text| text.split([',', ' ', ':']).filter_map(|p| p.trim().parse().ok()).collect::<Vec<u16>>())
        };
        let mut environment = Vec::new();
        let extra = list("JR2_PASS_ENV");
        let names = PASSED.iter().map(|name| (*name).to_owned()).chain(extra);
        for name in names {
            if let Some(value) = get(&name) {
                environment.push((name, value));
            }
        }
        for name in PROXIES {
            if let Some(value) = get(name).filter(|value| !value.contains('@')) {
                environment.push(((*name).to_owned(), value));
            }
        }
        for (name, default) in [("PATH", PATH_DEFAULT), ("LANG", "C.UTF-8"), ("TERM", "dumb")] {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.to_owned(), default.to_owned()));
            }
        }
        Self {
            sandbox,
            scratch,
            toolchains: list("JR2_TOOLCHAINS").into_iter().map(PathBuf::from).filter(|p| p.is_absolute()).collect(),
            denied_ports: ports("JR2_DENY_TCP_PORTS").unwrap_or_default(),
            allowed_ports: ports("JR2_ALLOW_TCP_PORTS"),
            environment,
        }
    }

    /// The command's home.
    pub fn home(&self) -> PathBuf {
        self.scratch.join("home")
    }

    /// The command's temporary folder.
    pub fn temporary(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// Makes the scratch folders and a git identity, where they are missing.
    pub(super) fn prepare(&self) -> Result<(), String> {
        let fail = |path: &Path, error: &dyn std::fmt::Display| {
            format!("The scratch folder {} cannot be made: {error}.", path.display())
        };
        for folder in [self.scratch.clone(), self.home(), self.temporary()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|e| fail(&folder, &e))?;
        }
        // The fallback has a name that others can guess: what they put there first is not ours.
        let meta = std::fs::symlink_metadata(&self.scratch).map_err(|e| fail(&self.scratch, &e))?;
        if self.sandbox.is_none() && (!meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw()) {
            return Err(fail(&self.scratch, &"it belongs to somebody else"));
        }
        let config = self.home().join(".gitconfig");
        if std::fs::symlink_metadata(&config).is_err() {
            std::fs::write(&config, GIT_CONFIG).map_err(|e| fail(&config, &e))?;
        }
        Ok(())
    }
}

/// A scratch folder for a root without a Sandbox, the same for the same root.
fn scratch_of(root: &Path) -> PathBuf {
    let digest = Sha256::digest(root.as_os_str().as_encoded_bytes());
    let mut name = format!("jr2-scratch-{}-", rustix::process::geteuid().as_raw());
    for byte in &digest[..8] {
        let _ = write!(name, "{byte:02x}");
    }
    std::env::temp_dir().join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_pass() {
        let set = [
            ("PATH", "/p"),
            ("OPENAI_API_KEY", "secret"),
            ("JR2_HARNESS_TOKEN_SHA256", "secret"),
            ("HOME", "/root"),
            ("HTTP_PROXY", "http://user:secret@proxy"),
            ("HTTPS_PROXY", "http://proxy"),
            ("JR2_PASS_ENV", "MY_STAND_IN:MISSING"),
            ("MY_STAND_IN", "s"),
            ("JR2_TOOLCHAINS", "/a::relative:/b"),
            ("JR2_DENY_TCP_PORTS", "4000, 4001,x"),
        ];
        let got = Surroundings::from_env(Path::new("/r"), |name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        let names: Vec<_> = got.environment.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "MY_STAND_IN", "HTTPS_PROXY", "LANG", "TERM"]);
        assert_eq!(got.toolchains, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!((got.denied_ports, got.allowed_ports), (vec![4000, 4001], None));
        assert_eq!(got.sandbox, None);
        assert_eq!(got.scratch, scratch_of(Path::new("/r")));
    }
}
