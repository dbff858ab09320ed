//! What the Harness is told at its start: the environment, read once (spec H-19, decisions 15, 45).

use crate::guard::{CgroupUse, Circumstances};
use jr2_shared::harness::HarnessConfig;
use std::path::{Path, PathBuf};

/// Port when neither `JR2_LISTEN` nor `PORT` says one (spec section 15).
pub const DEFAULT_PORT: u16 = 8080;
/// Where the Custodian is when `JR2_CUSTODIAN_URL` is unset (spec H-19).
pub const DEFAULT_CUSTODIAN_URL: &str = "http://127.0.0.1:8081";
/// Above this a cgroup v1 limit means "no limit": the kernel writes a page-rounded 2^63 there.
const CGROUP_UNLIMITED: u64 = 1 << 60;

/// Where the Harness listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// Facts of the Sandbox that only the mechanism knows (spec 8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// CPUs, when known.
    pub cpus: Option<u64>,
    /// Memory limit in bytes, when known.
    pub memory: Option<u64>,
    /// `/dev/shm` is this Sandbox's own (decision 45).
    pub shm_private: bool,
}

/// Everything the environment says.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `JR2_LISTEN`, else `0.0.0.0:$PORT`.
    pub listen: Listen,
    /// `JR2_CUSTODIAN_URL`: `http://…` or `unix:/path` (decision 15).
    pub custodian_url: String,
    /// `JR2_SANDBOX_TOKEN`: the Stand-in sent on control routes.
    pub sandbox_token: Option<String>,
    /// `JR2_HARNESS_TOKEN_SHA256`: digest of the bearer every route asks for (spec H-1).
    pub token_digest: String,
    /// `JR2_HARNESS_JSON`: the model providers.
    pub model: HarnessConfig,
    /// `JR2_MENU_ONLY`: this is the Instance Harness (spec H-7).
    pub menu_only: bool,
    /// `JR2_CONVERSATIONS_DIR`: where conversations persist; in memory only when unset (spec H-12).
    pub conversations_dir: Option<PathBuf>,
    /// What the Briefing may state.
    pub facts: Facts,
    /// `JR2_MEMORY` in bytes: without it the cgroup's limit is the only one.
    pub memory: Option<u64>,
    /// `JR2_CGROUP`: whose the memory cgroup is.
    pub cgroup: CgroupUse,
    /// `JR2_SANDBOX_DIR`, when it is absolute.
    pub sandbox: Option<PathBuf>,
}

/// Why the environment cannot be used. Each names the variable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The bearer's digest is missing, so nobody could be let in.
    #[error("JR2_HARNESS_TOKEN_SHA256 is not set: it must hold base64url(sha256(bearer)) of the bearer to accept")]
    NoDigest,
    /// The provider configuration does not parse.
    #[error("JR2_HARNESS_JSON is not a provider configuration: {0}")]
    HarnessJson(#[source] serde_json::Error),
    /// The port does not parse.
    #[error("PORT `{0}` is not a port number")]
    Port(String),
    /// The listen address has no port.
    #[error("JR2_LISTEN `{0}` is neither `unix:/path` nor `host:port`")]
    Listen(String),
    /// The Custodian's URL has a scheme the Harness does not speak.
    #[error("JR2_CUSTODIAN_URL `{0}` is neither `http://host:port` nor `unix:/path`")]
    Custodian(String),
}

impl Settings {
    /// Reads the environment through `get`; an empty value counts as unset.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let model = match get("JR2_HARNESS_JSON") {
            Some(text) => serde_json::from_str(&text).map_err(SettingsError::HarnessJson)?,
            None => HarnessConfig { providers: Vec::new() },
        };
        let memory = get("JR2_MEMORY").and_then(|text| jr2_shared::size::parse_memory(&text).ok());
        Ok(Self {
            listen: listen(get("JR2_LISTEN"), get("PORT"))?,
            custodian_url: custodian(get("JR2_CUSTODIAN_URL"))?,
            sandbox_token: get("JR2_SANDBOX_TOKEN"),
            token_digest: get("JR2_HARNESS_TOKEN_SHA256").ok_or(SettingsError::NoDigest)?,
            model,
            menu_only: get("JR2_MENU_ONLY").is_some_and(|value| value != "0" && value != "false"),
            conversations_dir: get("JR2_CONVERSATIONS_DIR").map(PathBuf::from),
            facts: Facts {
                cpus: get("JR2_CPUS").and_then(|text| text.parse().ok()).filter(|n| *n > 0),
                memory: memory.or_else(|| cgroup_memory(Path::new("/"))),
                shm_private: get("JR2_SHM").as_deref() == Some("private"),
            },
            memory,
            cgroup: CgroupUse::read(get("JR2_CGROUP").as_deref()),
            sandbox: get("JR2_SANDBOX_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
        })
    }

    /// What the memory guard's meter depends on.
    pub fn circumstances(&self) -> Circumstances {
        Circumstances {
            memory: self.memory,
            cpus: self.facts.cpus,
            cgroup: self.cgroup,
            shm_private: self.facts.shm_private,
            sandbox: self.sandbox.clone(),
        }
    }
}

fn listen(listen: Option<String>, port: Option<String>) -> Result<Listen, SettingsError> {
    let Some(text) = listen else {
        let port = match port {
            Some(text) => text.parse().map_err(|_| SettingsError::Port(text))?,
            None => DEFAULT_PORT,
        };
        return Ok(Listen::Tcp(format!("0.0.0.0:{port}")));
    };
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Listen::Unix(PathBuf::from(path)));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Listen::Tcp(text)),
        _ => Err(SettingsError::Listen(text)),
    }
}

fn custodian(url: Option<String>) -> Result<String, SettingsError> {
    let url = url.unwrap_or_else(|| DEFAULT_CUSTODIAN_URL.to_owned());
    let known = url.starts_with("http://") || url.strip_prefix("unix:").is_some_and(|path| path.starts_with('/'));
    if known { Ok(url.trim_end_matches('/').to_owned()) } else { Err(SettingsError::Custodian(url)) }
}

/// The memory limit of the cgroup this process is in, v2 or v1; `None` when there is none or it cannot be read.
fn cgroup_memory(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let v2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let v1 = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|c| c == "memory").then_some(path)
    });
    let base = root.join("sys/fs/cgroup");
    let mut files = Vec::new();
    if let Some(path) = v2 {
        files.push(base.join(path.trim_start_matches('/')).join("memory.max"));
        files.push(base.join("memory.max"));
    }
    if let Some(path) = v1 {
        files.push(base.join("memory").join(path.trim_start_matches('/')).join("memory.limit_in_bytes"));
        files.push(base.join("memory/memory.limit_in_bytes"));
    }
    files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .find(|bytes| (1..CGROUP_UNLIMITED).contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let map: HashMap<String, String> = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Settings::read(|name| map.get(name).cloned())
    }

    #[test]
    fn defaults_are_the_spec_s() {
        let settings = read(&[("JR2_HARNESS_TOKEN_SHA256", "d")]).unwrap();
        assert_eq!(settings.listen, Listen::Tcp("0.0.0.0:8080".into()));
        assert_eq!(settings.custodian_url, DEFAULT_CUSTODIAN_URL);
        assert!(!settings.menu_only && settings.conversations_dir.is_none());
        assert!(settings.facts.cpus.is_none() && !settings.facts.shm_private);
    }

    #[test]
    fn every_variable_is_read() {
        let settings = read(&[
            ("JR2_HARNESS_TOKEN_SHA256", "d"),
            ("JR2_LISTEN", "unix:/tmp/h.sock"),
            ("JR2_CUSTODIAN_URL", "unix:/tmp/c.sock"),
            ("JR2_SANDBOX_TOKEN", "t"),
            ("JR2_MENU_ONLY", "1"),
            ("JR2_CPUS", "4"),
            ("JR2_MEMORY", "2Gi"),
            ("JR2_SHM", "private"),
            ("JR2_HARNESS_JSON", r#"{"providers":[{"id":"p","baseUrl":"/providers/p"}]}"#),
        ])
        .unwrap();
        assert_eq!(settings.listen, Listen::Unix("/tmp/h.sock".into()));
        assert_eq!(settings.facts, Facts { cpus: Some(4), memory: Some(2 << 30), shm_private: true });
        assert_eq!(settings.model.providers[0].quirk, "generic");
        assert!(settings.menu_only);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert!(matches!(read(&[]), Err(SettingsError::NoDigest)));
        let with = |key, value| read(&[("JR2_HARNESS_TOKEN_SHA256", "d"), (key, value)]).unwrap_err().to_string();
        assert!(with("PORT", "lots").contains("PORT"));
        assert!(with("JR2_LISTEN", "nowhere").contains("JR2_LISTEN"));
        assert!(with("JR2_CUSTODIAN_URL", "ftp://x").contains("JR2_CUSTODIAN_URL"));
        assert!(with("JR2_HARNESS_JSON", "{").contains("JR2_HARNESS_JSON"));
    }

    #[test]
    fn the_cgroup_limit_is_read_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/pod/a\n");
        write("sys/fs/cgroup/pod/a/memory.max", "2147483648\n");
        assert_eq!(cgroup_memory(dir.path()), Some(2 << 30));
        write("sys/fs/cgroup/pod/a/memory.max", "max\n");
        assert_eq!(cgroup_memory(dir.path()), None);
        write("proc/self/cgroup", "7:cpu:/x\n4:memory:/pod\n");
        write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroup_memory(dir.path()), None);
        write("sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "536870912\n");
        assert_eq!(cgroup_memory(dir.path()), Some(512 << 20));
    }
}
