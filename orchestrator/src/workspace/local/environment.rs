//! What a Harness process inherits: an allow-list, and what jr2 says. Nothing of the user's environment is a secret's way in.

use super::cgroup::Cgroup;
use super::layout::Place;
use super::process::Marks;
use jr2_shared::crash;
use jr2_shared::harness::{HarnessConfig, token_digest};
use jr2_shared::size::Size;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables taken over from the Orchestrator's own environment.
const INHERITED: [&str; 5] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];
/// Where and how the Harness exports its traces. Never `OTEL_EXPORTER_OTLP_HEADERS`: a collector's key is a secret.
const TELEMETRY: [&str; 9] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_RESOURCE_ATTRIBUTES",
    jr2_telemetry::genai::CAPTURE_VARIABLE,
];
/// Used when the Orchestrator itself has no `PATH`.
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Says which TCP ports the Agent's processes must not dial.
pub const DENIED_PORTS_VARIABLE: &str = "JR2_DENY_TCP_PORTS";

/// What an environment is made of.
pub struct Environment<'a> {
    /// Where the Sandbox lies.
    pub place: &'a Place,
    /// The bearer towards the Harness; only its digest is said.
    pub harness_token: &'a str,
    /// The bearer towards the Custodian.
    pub sandbox_token: &'a str,
    /// Providers with Stand-ins.
    pub config: &'a HarnessConfig,
    /// The ceiling.
    pub size: Size,
    /// Its memory cgroup, where it has one: only then is a limit said.
    pub cgroup: Option<&'a Cgroup>,
    /// Folders with programs an Agent may read and run.
    pub toolchains: &'a [PathBuf],
    /// The Orchestrator's own port, which the Agent's processes must not dial.
    pub api_port: Option<u16>,
    /// Menu-only Agents (spec H-7).
    pub menu_only: bool,
}

impl Environment<'_> {
    /// The variables, complete.
    pub fn variables(&self, inherited: impl Fn(&str) -> Option<OsString>) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> = Vec::new();
        let mut set = |name: &str, value: OsString| all.push((name.into(), value));
        for name in INHERITED.iter().chain(crash::VARIABLES).chain(&TELEMETRY).copied() {
            let value = inherited(name).or_else(|| (name == "PATH").then(|| FALLBACK_PATH.into()));
            if let Some(value) = value {
                set(name, value);
            }
        }
        let place = self.place;
        set("HOME", place.home.clone().into());
        set("TMPDIR", place.tmp.clone().into());
        set("JR2_LISTEN", socket_url(&place.harness));
        set("JR2_HARNESS_TOKEN_SHA256", token_digest(self.harness_token).into());
        set("JR2_SANDBOX_TOKEN", self.sandbox_token.into());
        set("JR2_CUSTODIAN_URL", socket_url(&place.custodian));
        set("JR2_HARNESS_JSON", serde_json::to_string(self.config).unwrap_or_default().into());
        set("JR2_CONVERSATIONS_DIR", place.conversations.clone().into());
        set("JR2_SANDBOX_DIR", place.dir.clone().into());
        set("JR2_CPUS", cpus(self.size).to_string().into());
        if let Some(cgroup) = self.cgroup {
            set("JR2_MEMORY", self.size.memory_bytes.to_string().into());
            set("JR2_CGROUP", cgroup.hand_over().into());
        }
        if let Ok(joined) = std::env::join_paths(self.toolchains) {
            set("JR2_TOOLCHAINS", joined);
        }
        if let Some(rustup) = self.toolchains.iter().find(|t| t.file_name() == Some(OsStr::new(".rustup"))) {
            // rustup's programs look below HOME otherwise, and that is the Sandbox's own.
            set("RUSTUP_HOME", rustup.clone().into());
        }
        if let Some(port) = self.api_port {
            set(DENIED_PORTS_VARIABLE, port.to_string().into());
        }
        if self.menu_only {
            set("JR2_MENU_ONLY", "1".into());
        }
        all
    }
}

/// What an Agent-less command inherits of a Sandbox's variables: where it is and what it may run, no token and no socket.
pub fn of_a_step(all: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    const KEPT: [&str; 7] =
        ["HOME", "TMPDIR", "JR2_SANDBOX_DIR", "JR2_TOOLCHAINS", DENIED_PORTS_VARIABLE, "RUSTUP_HOME", "JR2_CPUS"];
    all.into_iter().filter(|(name, _)| INHERITED.iter().chain(&KEPT).any(|kept| name == *kept)).collect()
}

/// How every process of a Sandbox is known.
pub fn marks(place: &Place, cgroup: Option<&Cgroup>) -> Marks {
    let environment =
        vec![format!("JR2_SANDBOX_DIR={}", place.dir.display()), format!("HOME={}", place.home.display())];
    Marks { environment, cgroup: cgroup.cloned() }
}

/// The line that only a Harness of this token has.
pub fn harness_mark(harness_token: &str) -> String {
    format!("JR2_HARNESS_TOKEN_SHA256={}", token_digest(harness_token))
}

/// Folders on `PATH` that lie in the user's home, as an Agent needs them: the whole version folder of a version manager, the
/// bare program folder where the folder above may hold credentials, and rustup's toolchains.
pub fn toolchains_of(path: &OsStr, home: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for dir in std::env::split_paths(path).filter(|dir| dir.starts_with(home) && dir.is_dir()) {
        let depth = dir.strip_prefix(home).map_or(0, |p| p.components().count());
        let is_bin = dir.file_name() == Some(OsStr::new("bin"));
        let root = if is_bin && depth > 2 { dir.parent().unwrap_or(&dir).to_owned() } else { dir };
        if depth > 0 && !found.contains(&root) {
            found.push(root);
        }
    }
    let rustup = home.join(".rustup");
    if rustup.is_dir() {
        found.push(rustup);
    }
    found
}

fn socket_url(path: &Path) -> OsString {
    let mut url = OsString::from("unix:");
    url.push(path);
    url
}

/// Whole CPUs for the Briefing: the Size rounded up, never more than the machine has.
fn cpus(size: Size) -> u64 {
    let asked = size.cpu_millis.div_ceil(1_000).max(1);
    let there = std::thread::available_parallelism().map_or(asked, |n| n.get() as u64);
    asked.min(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allow_list_is_inherited() {
        let root = tempfile::tempdir().unwrap();
        let layout = super::super::layout::Layout::open(root.path()).unwrap();
        let place = layout.place("ws-a");
        let environment = Environment {
            place: &place,
            harness_token: "harness-secret",
            sandbox_token: "t",
            config: &HarnessConfig { providers: vec![] },
            size: Size::default(),
            cgroup: None,
            toolchains: &[],
            api_port: Some(4000),
            menu_only: false,
        };
        let all = environment.variables(|name| Some(format!("inherited-{name}").into()));
        let inherited: Vec<&OsStr> = all
            .iter()
            .filter(|(_, v)| v.to_string_lossy().starts_with("inherited"))
            .map(|(n, _)| n.as_os_str())
            .collect();
        let allowed: Vec<&str> = INHERITED.iter().chain(crash::VARIABLES).chain(&TELEMETRY).copied().collect();
        assert_eq!(inherited, allowed, "the crash points' own only in builds that have them");
        assert!(!all.iter().any(|(_, v)| v.to_string_lossy().contains("harness-secret")));
        assert!(all.contains(&("JR2_DENY_TCP_PORTS".into(), "4000".into())));
        assert!(!all.iter().any(|(n, _)| n == "JR2_MENU_ONLY"));
        assert!(!all.iter().any(|(n, _)| n == "JR2_MEMORY"), "a limit is said that nothing enforces");
        let cgroup = Cgroup { path: "/no/such/group".into() };
        let limited = Environment { cgroup: Some(&cgroup), ..environment }.variables(|_| None);
        assert!(limited.iter().any(|(n, _)| n == "JR2_MEMORY"));
        assert!(limited.contains(&("JR2_CGROUP".into(), "private".into())));
    }

    #[test]
    fn toolchains_are_what_path_names_below_home() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path();
        for dir in [".cargo/bin", ".nvm/versions/v20/bin", "bin", ".rustup"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        let path = std::env::join_paths([
            home.join(".cargo/bin"),
            home.join(".nvm/versions/v20/bin"),
            "/usr/bin".into(),
            home.join("gone"),
        ]);
        let found = toolchains_of(&path.unwrap(), home);
        assert_eq!(found, [home.join(".cargo/bin"), home.join(".nvm/versions/v20"), home.join(".rustup")]);
    }
}
