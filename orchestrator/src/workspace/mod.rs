//! Sandbox providers: where a Workspace's Agent runs. A local process here; a Kubernetes resource behind the same trait
//! later.

mod branches;
mod control;
mod git;
pub mod local;
mod name;
mod nested;
mod outages;
mod providers;

pub use local::{LocalLimits, LocalOptions, LocalProvider};
pub use name::sandbox_name;
pub use providers::{ProviderBinding, ProviderError, ProviderKey};

use jr2_shared::size::Size;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;

/// The name under which the Instance Harness speaks on its control socket (spec 2.3).
pub const INSTANCE_HARNESS: &str = "jr2-instance-harness";

/// A boxed future of a provider.
pub type ProviderFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a Workspace asks for. Everything is resolved text; it is persisted in the run's row before it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    /// Deterministic name (spec K-14, decision 42): `ws-<run>-<actor>-<hash>`, entry ordinal included.
    pub name: String,
    /// The run, for labels and logs.
    pub run: String,
    /// Slots in order.
    pub repos: Vec<RepoBinding>,
    /// The branch every slot's worktree is on.
    pub branch: String,
    /// The ceiling.
    pub size: Size,
}

/// One resolved slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepoBinding {
    /// The workflow's word for it.
    pub slot: String,
    /// URL or absolute path.
    pub url: String,
    /// Where to start; the default branch when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A Sandbox that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioned {
    /// Tells this Sandbox from an earlier one of the same name; deletes carry it (decision 42).
    pub uid: String,
    /// Worktree path by slot, in slot order.
    pub repos: Vec<(String, String)>,
    /// The branch.
    pub branch: String,
}

/// Why a Sandbox could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct ProvisionError {
    /// A short fixed word: `clone-failed`, `branch-refused`, `harness-not-ready`, …
    pub reason: String,
    /// For people, with what to do.
    pub message: String,
}

/// Where a branch went at teardown (decision 47).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedBranch {
    /// The slot.
    pub slot: String,
    /// The repository that holds it now.
    pub repository: String,
    /// Its name there (`-2` when the name was taken by something else).
    pub branch: String,
    /// The commit.
    pub commit: String,
    /// Folders of the worktree that are repositories of their own and not in the branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The Workspace's directory, kept because it holds what was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl SavedBranch {
    /// What is not in the branch and where it is, for people.
    pub fn left_out_words(&self) -> Option<String> {
        let kept = self.kept.as_ref()?;
        let folders = self.left_out.join(", ");
        Some(format!("without {folders}: a git repository of its own; the Workspace is kept at {kept}"))
    }
}

/// How a Harness is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarnessEndpoint {
    /// `http://127.0.0.1:PORT` or `unix:/path`.
    pub url: String,
    /// The bearer.
    pub token: String,
}

/// How a Harness process last ended (spec O-6). A provider keeps it until the Harness ends again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastEnd {
    /// Exit code, or 128 + signal.
    pub exit_code: i32,
    /// The kernel killed it for memory; `None` = cause unknown (exit 137 alone is never called OOM).
    pub oom: Option<bool>,
    /// A sentence for fault reasons.
    pub reason: String,
    /// When it ended, in milliseconds since the epoch; later ends of one Sandbox have later instants.
    #[serde(default)]
    pub at: u64,
    /// The Sandbox's memory limit as a Size is written, where one was enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What a provider tells the run host, unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxEvent {
    /// The Harness process ended and another one listens now.
    HarnessRestarted {
        /// The Sandbox.
        name: String,
        /// How the old one ended.
        last_end: LastEnd,
    },
    /// A model provider does not answer the Sandbox's Agents, or answers again.
    Model {
        /// The Sandbox.
        name: String,
        /// The provider.
        provider: String,
        /// Why not, in a few words; `None` = it answers again.
        cause: Option<String>,
    },
    /// The Sandbox's directory is gone: `workspace.lost`.
    Lost {
        /// The Sandbox.
        name: String,
        /// Short word.
        reason: String,
        /// For people.
        message: String,
    },
}

/// Makes, keeps and removes Sandboxes.
pub trait SandboxProvider: Send + Sync + 'static {
    /// Makes the Sandbox or adopts the one that is already there under this name; resolves when its Harness answers.
    fn provision<'a>(&'a self, spec: &'a SandboxSpec) -> ProviderFuture<'a, Result<Provisioned, ProvisionError>>;
    /// After an Orchestrator restart: take the Sandbox over again (bind its socket, watch or restart its Harness).
    /// Never clones. A missing directory is answered by a [`SandboxEvent::Lost`].
    fn adopt<'a>(&'a self, spec: &'a SandboxSpec, uid: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>>;
    /// Saves branches (decision 47), ends the Harness and everything it started, removes the directory. Idempotent.
    fn teardown<'a>(
        &'a self,
        spec: &'a SandboxSpec,
        uid: &'a str,
    ) -> ProviderFuture<'a, Result<Vec<SavedBranch>, ProvisionError>>;
    /// Runs one Agent-less command in the Sandbox, fenced like the Agent's own processes, and ends it and everything it
    /// started when this process dies or the future is dropped. `key` is in its environment as `JR2_STEP_KEY`.
    fn step<'a>(
        &'a self,
        name: &'a str,
        key: &'a str,
        attempt: u32,
        request: &'a crate::run::core::DoRequest,
    ) -> ProviderFuture<'a, crate::run::core::DoResult>;
    /// Brings the repository of this identity up to date in the Sandbox's clones.
    fn fetch<'a>(&'a self, name: &'a str, identity: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>>;
    /// The Sandbox that this Sandbox token belongs to.
    fn sandbox_of(&self, token: &str) -> Option<String>;
    /// How to dial the Harness of a Sandbox that is up, or `None`.
    fn endpoint(&self, name: &str) -> Option<HarnessEndpoint>;
    /// How the Harness of a Sandbox last ended. It stays until the Harness ends again, over restarts of the Orchestrator
    /// too: reading does not clear it.
    fn last_end(&self, name: &str) -> Option<LastEnd>;
    /// The Instance Harness for Menu-only Agents; started at the first call.
    fn instance_harness(&self) -> ProviderFuture<'_, Result<HarnessEndpoint, ProvisionError>>;
    /// The answer of a teardown is saved in the run's row: what was kept to repeat it goes.
    fn forget(&self, _name: &str, _uid: &str) {}
    /// Removes Sandboxes that are not in `live` (boot and hourly, decision 42).
    fn sweep<'a>(&'a self, live: &'a [String]) -> ProviderFuture<'a, usize>;
    /// The Orchestrator stops: keep every Sandbox and its Harness running, only let go.
    fn release(&self) -> ProviderFuture<'_, ()>;
}
