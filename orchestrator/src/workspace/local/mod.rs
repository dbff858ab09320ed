//! Sandboxes on this machine: a directory with clones and one `jr2-harness` process in its own session.
//!
//! What outlives the Orchestrator is on disk (`record`) and in the process table; a new Orchestrator adopts both.

mod cgroup;
mod death;
mod diff;
mod environment;
mod fetch;
mod layout;
mod lifecycle;
mod locks;
mod process;
mod record;
mod removal;
mod restart;
mod steps;
mod supervise;

pub use death::{OomCounter, UNKNOWN_EXIT_CODE};
pub use environment::toolchains_of;
pub use layout::LayoutError;
pub use restart::RestartLimits;

use super::control::Custodian;
use super::git::{GIT_TIMEOUT, Git};
use super::providers::{ProviderBinding, ProviderError, Providers};
use super::{
    HarnessEndpoint, INSTANCE_HARNESS, LastEnd, ProviderFuture, ProvisionError, Provisioned, SandboxEvent,
    SandboxProvider, SandboxSpec, SavedBranch,
};
use cgroup::Ground;
use layout::Layout;
use record::Record;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Gives the control routes of a Sandbox: the surface, the picks, and their answers.
pub type ControlRoutes = Arc<dyn Fn(&str) -> axum::Router + Send + Sync>;

/// How patient a provider is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    /// Until a started Harness must answer (spec 5.5 gives a pod 120 s; a process has no image to pull).
    pub ready: Duration,
    /// Restarts of a Harness that never answered (spec 5.5).
    pub restarts_before_ready: u32,
    /// Restarts of one that did.
    pub restarts: RestartLimits,
    /// How often a Sandbox's directory and log are looked at.
    pub look: Duration,
    /// Longest time of one git command.
    pub git: Duration,
}

impl Default for LocalLimits {
    fn default() -> Self {
        Self {
            ready: Duration::from_secs(30),
            restarts_before_ready: 1,
            restarts: RestartLimits::default(),
            look: Duration::from_secs(1),
            git: GIT_TIMEOUT,
        }
    }
}

/// What a [`LocalProvider`] is made of.
pub struct LocalOptions {
    /// `.jr2`.
    pub state_dir: PathBuf,
    /// The `jr2-harness` program.
    pub harness_bin: PathBuf,
    /// Model providers with their keys.
    pub providers: Vec<ProviderBinding>,
    /// The Orchestrator's own port, which Agents must not dial (decision 46).
    pub api_port: Option<u16>,
    /// Raised at every open of the store (decision 4).
    pub owner_epoch: u64,
    /// The control routes, by Sandbox name ([`INSTANCE_HARNESS`] among them).
    pub control: ControlRoutes,
    /// Where news goes.
    pub events: UnboundedSender<SandboxEvent>,
    /// Folders with programs an Agent may read and run, beside the system's own; see [`toolchains_of`].
    pub toolchains: Vec<PathBuf>,
    /// Each Sandbox gets a memory cgroup where this machine allows it; `false` = none, whatever the machine allows.
    pub memory_cgroups: bool,
    /// How patient we are.
    pub limits: LocalLimits,
}

impl LocalOptions {
    /// Options without providers and port, with usual limits and the toolchains of `PATH` and `HOME`.
    pub fn new(
        state_dir: PathBuf,
        harness_bin: PathBuf,
        control: ControlRoutes,
        events: UnboundedSender<SandboxEvent>,
    ) -> Self {
        let toolchains = match (std::env::var_os("PATH"), std::env::var_os("HOME")) {
            (Some(path), Some(home)) if !home.is_empty() => toolchains_of(&path, home.as_ref()),
            _ => Vec::new(),
        };
        Self {
            state_dir,
            harness_bin,
            providers: Vec::new(),
            api_port: None,
            owner_epoch: 0,
            control,
            events,
            toolchains,
            memory_cgroups: true,
            limits: LocalLimits::default(),
        }
    }
}

/// Why a provider cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The state folder.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The providers.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A file in the state folder.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
}

/// Makes, keeps and removes Sandboxes on this machine.
pub struct LocalProvider {
    options: LocalOptions,
    layout: Layout,
    git: Git,
    providers: Arc<Providers>,
    /// Where memory cgroups can be made, if anywhere.
    ground: Option<Ground>,
    live: Mutex<HashMap<String, Live>>,
    /// One operation at a time on a name.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A Sandbox this process holds. Dropping it lets go: the watch ends, the socket closes, the Harness runs on.
struct Live {
    uid: String,
    endpoint: HarnessEndpoint,
    lost: Arc<AtomicBool>,
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
    custodian: Custodian,
    /// Of the Sandbox token: who speaks on the API.
    token_digest: String,
}

impl Live {
    /// Lets go and waits until the watch has ended.
    async fn release(self) {
        drop(self.custodian);
        drop(self.stop);
        // It ends by itself once told; a panic in it was logged by the runtime.
        let _ = self.task.await;
    }
}

impl LocalProvider {
    /// Prepares the state folder. Nothing is started or adopted yet.
    pub fn new(mut options: LocalOptions) -> Result<Self, LocalError> {
        let layout = Layout::open(&options.state_dir)?;
        let providers = Arc::new(Providers::new(std::mem::take(&mut options.providers), options.events.clone())?);
        let config = layout.state.join("gitconfig");
        std::fs::write(&config, Git::configuration())
            .map_err(|error| LocalError::Io { path: config.clone(), error })?;
        let git = Git { config, timeout: options.limits.git };
        let ground = options.memory_cgroups.then(|| ground_of(&layout)).flatten();
        Ok(Self { options, layout, git, providers, ground, live: Mutex::default(), turns: Mutex::default() })
    }

    fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|held, turn| held == name || Arc::strong_count(turn) > 1);
        turns.entry(name.to_owned()).or_default().clone()
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line says it when no limit is kept here.
fn ground_of(layout: &Layout) -> Option<Ground> {
    Ground::find(&layout.owner_word()).inspect_err(|why| tracing::info!(%why, "sandbox.memory_not_enforced")).ok()
}

impl SandboxProvider for LocalProvider {
    fn provision<'a>(&'a self, spec: &'a SandboxSpec) -> ProviderFuture<'a, Result<Provisioned, ProvisionError>> {
        Box::pin(async move {
            let turn = self.turn(&spec.name);
            let _held = turn.lock().await;
            self.provision_held(spec).await
        })
    }

    fn adopt<'a>(&'a self, spec: &'a SandboxSpec, uid: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>> {
        Box::pin(async move {
            let turn = self.turn(&spec.name);
            let _held = turn.lock().await;
            self.adopt_held(spec, uid).await
        })
    }

    fn teardown<'a>(
        &'a self,
        spec: &'a SandboxSpec,
        uid: &'a str,
    ) -> ProviderFuture<'a, Result<Vec<SavedBranch>, ProvisionError>> {
        Box::pin(async move {
            let turn = self.turn(&spec.name);
            let _held = turn.lock().await;
            self.teardown_held(&spec.name, uid).await
        })
    }

    fn step<'a>(
        &'a self,
        name: &'a str,
        key: &'a str,
        attempt: u32,
        request: &'a crate::run::core::DoRequest,
    ) -> ProviderFuture<'a, crate::run::core::DoResult> {
        Box::pin(self.run_step(name, key, attempt, request))
    }

    fn fetch<'a>(&'a self, name: &'a str, identity: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>> {
        Box::pin(async move {
            let turn = self.turn(&format!("fetch {name}"));
            let _held = turn.lock().await;
            self.fetch_held(name, identity).await
        })
    }

    fn sandbox_of(&self, token: &str) -> Option<String> {
        let digest = jr2_shared::harness::token_digest(token);
        self.live().iter().find(|(_, live)| live.token_digest == digest).map(|(name, _)| name.clone())
    }

    fn endpoint(&self, name: &str) -> Option<HarnessEndpoint> {
        self.live().get(name).filter(|l| !l.lost.load(Ordering::Acquire)).map(|l| l.endpoint.clone())
    }

    fn last_end(&self, name: &str) -> Option<LastEnd> {
        super::name::check_label("sandbox", name).ok()?;
        match Record::load(&self.layout.place(name).record) {
            Ok(record) => Some(record?.ended?.end),
            Err(error) => {
                tracing::warn!(sandbox = name, %error, "sandbox.record_unreadable");
                None
            }
        }
    }

    fn instance_harness(&self) -> ProviderFuture<'_, Result<HarnessEndpoint, ProvisionError>> {
        Box::pin(async move {
            let turn = self.turn(INSTANCE_HARNESS);
            let _held = turn.lock().await;
            self.instance_held().await
        })
    }

    fn forget(&self, name: &str, uid: &str) {
        self.forget_gone(name, uid);
    }

    fn sweep<'a>(&'a self, live: &'a [String]) -> ProviderFuture<'a, usize> {
        Box::pin(self.sweep_all(live))
    }

    fn release(&self) -> ProviderFuture<'_, ()> {
        Box::pin(async move {
            let all: Vec<Live> = self.live().drain().map(|(_, live)| live).collect();
            for live in all {
                live.release().await;
            }
        })
    }
}
