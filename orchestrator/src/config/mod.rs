//! What an Instance is told: `jr2.yaml`, the environment, and the state folder with its token (decision 46).

mod file;
mod state;

pub use file::{CONFIG_FILE, SETTINGS, schema};
pub use state::{Announcement, StateDir, StateError};

use crate::store::{DISK_MAX_DEFAULT_BYTES, Durability, StoreOptions};
use crate::workflow::Diagnostics;
use crate::workspace::{ProviderBinding, ProviderKey};
use jr2_shared::harness::Provider;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the API listens when nothing else is said.
pub const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4000);
/// The folder of workflow files when nothing else is said, below the Instance's folder.
pub const WORKFLOWS_DEFAULT: &str = "workflows";
/// The state folder, below the Instance's folder.
pub const STATE_DIR: &str = ".jr2";
/// The store, below the state folder.
const STORE_DIR: &str = "store";
/// The provider that `OPENAI_API_KEY` makes when `jr2.yaml` has none of that name.
const OPENAI_ID: &str = "openai";
/// Where it is when `OPENAI_BASE_URL` is unset.
const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Everything an Orchestrator of one folder is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Instance's folder.
    pub dir: PathBuf,
    /// `.jr2`.
    pub state: PathBuf,
    /// Where the API listens.
    pub listen: SocketAddr,
    /// The folder of workflow files.
    pub workflows: PathBuf,
    /// The store's directory.
    pub store: PathBuf,
    /// What an acknowledged save survives.
    pub durability: Durability,
    /// Most bytes the store may take.
    pub disk_max_bytes: u64,
    /// Memory of a Sandbox whose workflow says none, as written.
    pub memory: Option<String>,
    /// CPUs of a Sandbox whose workflow says none, as written.
    pub cpu: Option<String>,
    /// Model providers with where their keys are.
    pub providers: Vec<ProviderBinding>,
}

impl Settings {
    /// The settings of a folder without a file.
    pub fn of(dir: &Path) -> Self {
        let state = dir.join(STATE_DIR);
        Self {
            dir: dir.to_owned(),
            listen: LISTEN_DEFAULT,
            workflows: dir.join(WORKFLOWS_DEFAULT),
            store: state.join(STORE_DIR),
            durability: Durability::default(),
            disk_max_bytes: DISK_MAX_DEFAULT_BYTES,
            memory: None,
            cpu: None,
            providers: Vec::new(),
            state,
        }
    }

    /// Reads `jr2.yaml` of a folder, when there is one, and what the environment adds. All problems are told at once.
    pub fn load(dir: &Path, env: impl Fn(&str) -> Option<String>) -> Result<Self, Diagnostics> {
        let mut settings = Self::of(dir);
        let path = dir.join(CONFIG_FILE);
        if path.exists() {
            file::read(&path, &mut settings)?;
        }
        settings.add_openai(env);
        Ok(settings)
    }

    /// `OPENAI_API_KEY` or `OPENAI_BASE_URL` make a provider `openai`, unless one is configured.
    fn add_openai(&mut self, env: impl Fn(&str) -> Option<String>) {
        let env = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let known = self.providers.iter().any(|p| p.provider.id == OPENAI_ID);
        let (base, key) = (env("OPENAI_BASE_URL"), env("OPENAI_API_KEY"));
        if known || (base.is_none() && key.is_none()) {
            return;
        }
        let quirk = if base.is_none() { "openai" } else { "generic" };
        let base = base.unwrap_or_else(|| OPENAI_BASE_URL.to_owned());
        let key = key.map_or(ProviderKey::None, |_| ProviderKey::Env("OPENAI_API_KEY".to_owned()));
        self.providers.push(provider(OPENAI_ID, &base, quirk, key));
    }

    /// How the store is opened.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            durability: self.durability,
            disk_max_bytes: self.disk_max_bytes,
            ..StoreOptions::new(&self.store)
        }
    }
}

/// A provider with the usual wire and no bounds of its own.
pub fn provider(id: &str, base_url: &str, quirk: &str, key: ProviderKey) -> ProviderBinding {
    let provider = Provider {
        id: id.to_owned(),
        api: "chat-completions".to_owned(),
        base_url: base_url.trim().trim_end_matches('/').to_owned(),
        quirk: quirk.to_owned(),
        stand_in: None,
        context_window: None,
        max_tokens: None,
        idle_seconds: None,
    };
    ProviderBinding { provider, key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str, env: &[(&str, &str)]) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CONFIG_FILE), text).unwrap();
        let env = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Settings::load(dir.path(), env).map_err(|d| d.plain().replace(&dir.path().display().to_string(), "."))
    }

    #[test]
    fn every_setting_is_read() {
        let settings = load(
            "listen: 127.0.0.1:4100\nworkflows: flows\nstore: { dir: /var/lib/x, durability: process, diskMax: 1Gi }\n\
             size: { memory: 1Gi, cpu: 2 }\nproviders:\n  local: { baseUrl: 'http://127.0.0.1:1/v1/', quirk: llama.cpp, \
             key: { env: KEY }, contextWindow: 8192, maxTokens: 512, idleSeconds: 900 }\n",
            &[],
        )
        .unwrap();
        assert_eq!(settings.listen.port(), 4100);
        assert_eq!(settings.workflows, settings.dir.join("flows"));
        assert_eq!(settings.store, Path::new("/var/lib/x"));
        assert_eq!((settings.durability, settings.disk_max_bytes), (Durability::Process, 1 << 30));
        assert_eq!((settings.memory.as_deref(), settings.cpu.as_deref()), (Some("1Gi"), Some("2")));
        let local = &settings.providers[0];
        assert_eq!(local.key, ProviderKey::Env("KEY".into()));
        assert_eq!(
            (local.provider.base_url.as_str(), local.provider.context_window),
            ("http://127.0.0.1:1/v1", Some(8192))
        );
    }

    #[test]
    fn wrong_settings_are_told_with_their_places_all_at_once() {
        let told = load(
            "lisen: x\nlisten: nowhere\nstore: { durability: never }\nproviders:\n  a: { baseUrl: 'ftp://x' }\n  b: {}\n",
            &[],
        )
        .unwrap_err();
        insta::assert_snapshot!(told, @r"
        ./jr2.yaml:1:1: error[JR0101]: `lisen` is not a key of the settings (fix: did you mean `listen`?)
        ./jr2.yaml:2:9: error[JR0701]: `listen` must be an address with a port (fix: write `127.0.0.1:4000`)
        ./jr2.yaml:3:22: error[JR0104]: `durability` cannot be `never` (fix: there is `power`, `process`)
        ./jr2.yaml:5:17: error[JR0701]: the base URL of `a` must be http or https (fix: write `https://HOST/v1`)
        ./jr2.yaml:6:6: error[JR0103]: a provider needs the key `baseUrl` (fix: add `baseUrl`: Its OpenAI-compatible base URL)
        ");
    }

    #[test]
    fn the_environment_makes_a_provider_unless_one_is_configured() {
        let none = load("{}", &[("OPENAI_API_KEY", " ")]).unwrap();
        assert!(none.providers.is_empty());
        let key = load("{}", &[("OPENAI_API_KEY", "k")]).unwrap();
        assert_eq!(key.providers[0].provider.base_url, OPENAI_BASE_URL);
        assert_eq!(key.providers[0].key, ProviderKey::Env("OPENAI_API_KEY".into()));
        let own = load("providers: { openai: { baseUrl: 'http://a/v1' } }", &[("OPENAI_API_KEY", "k")]).unwrap();
        assert_eq!((own.providers.len(), own.providers[0].provider.base_url.as_str()), (1, "http://a/v1"));
    }
}
