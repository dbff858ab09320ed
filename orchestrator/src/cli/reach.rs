//! Whom a command speaks to: the server that answers, else an Orchestrator of its own.

use super::client::Client;
use super::exit::{Exit, Failure};
use super::{Global, attempt, output, programs};
use crate::config::{Settings, StateDir};
use crate::run::StoredRuns;
use crate::serve::{Options, Orchestrator, Sizes, deploy};
use crate::store::{SledStore, StoreError};
use crate::workspace::ProviderBinding;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// The Instance token for servers elsewhere.
const TOKEN_VARIABLE: &str = "JR2_TOKEN";

/// Someone who does what a command asks.
pub struct Reach {
    /// Speaks to them.
    pub client: Client,
    /// They live in this process.
    own: Option<Own>,
}

/// An Orchestrator of this process, with the scripted model of a try when the folder is one's.
struct Own {
    orchestrator: Orchestrator,
    _model: Option<attempt::Model>,
}

impl Reach {
    /// The server that answers, else an own Orchestrator on the folder's store.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        if let Some(client) = server(global).await? {
            return Ok(Self { client, own: None });
        }
        let settings = settings(global)?;
        let model = attempt::model_of(&settings.dir)?;
        let extra = model.as_ref().map(attempt::Model::binding).into_iter().collect();
        let orchestrator = own(settings, extra).await?;
        Self::of(orchestrator, model)
    }

    /// An Orchestrator that runs in this process.
    pub fn of(orchestrator: Orchestrator, model: Option<attempt::Model>) -> Result<Self, Failure> {
        let client = Client::new(&orchestrator.url, &orchestrator.token)?;
        Ok(Self { client, own: Some(Own { orchestrator, _model: model }) })
    }

    /// The Orchestrator of this process.
    pub fn own(&self) -> Option<&Orchestrator> {
        self.own.as_ref().map(|own| &own.orchestrator)
    }

    /// Lets go: an own Orchestrator stops, its runs stay as they are saved.
    pub async fn close(self) {
        if let Some(own) = self.own {
            let provider = own.orchestrator.provider.clone();
            own.orchestrator.stop().await;
            // Nobody speaks to it any more; the next Orchestrator starts one when it needs it.
            provider.end_instance_harness().await;
        }
    }
}

/// The folder's settings.
pub fn settings(global: &Global) -> Result<Settings, Failure> {
    let dir = global.dir();
    if !dir.is_dir() {
        return Err(Failure::new(Exit::NotFound, format!("there is no folder {}", dir.display())));
    }
    let dir = dir.canonicalize().unwrap_or(dir);
    Ok(Settings::load(&dir, |name| std::env::var(name).ok())?)
}

/// The Instance's default Size.
pub fn sizes(settings: &Settings) -> Sizes {
    (settings.memory.clone(), settings.cpu.clone())
}

/// The server to speak to: the named one, which must answer, or the folder's, which may be gone.
pub async fn server(global: &Global) -> Result<Option<Client>, Failure> {
    let state = StateDir::at(&global.dir().join(crate::config::STATE_DIR));
    let token = std::env::var(TOKEN_VARIABLE).ok().filter(|t| !t.is_empty()).or_else(|| state.token());
    if let Some(url) = &global.server {
        let client = Client::new(url, &token.unwrap_or_default())?;
        if client.hello().await {
            return Ok(Some(client));
        }
        return Err(Failure::failed(format!("no server answers at {url}")));
    }
    let (Some(announced), Some(token)) = (state.announced(), state.token()) else { return Ok(None) };
    let client = Client::new(&announced.url, &token)?;
    Ok(client.is_ours().await.then_some(client))
}

/// Starts an Orchestrator in this process, on a free port of this machine.
pub async fn own(mut settings: Settings, extra: Vec<ProviderBinding>) -> Result<Orchestrator, Failure> {
    for binding in extra {
        settings.providers.retain(|p| p.provider.id != binding.provider.id);
        settings.providers.push(binding);
    }
    let deployment = deploy(&settings.workflows, &sizes(&settings));
    if deployment.problems.has_errors() {
        output::say(&deployment.problems.plain());
    }
    let options = Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        programs: deployment.programs,
        harness: programs::harness(),
        fatal: Arc::new(store_failed),
        settings,
    };
    Ok(Orchestrator::start(options).await?)
}

/// The store failed: nothing more may leave this process (decision 43).
pub fn store_failed(error: &StoreError) {
    output::say(&format!(
        "jr2: {error}\n  help: the run is as it was last saved; see `jr2 store verify`, then start again"
    ));
    std::process::exit(i32::from(Exit::Failed as u8));
}

/// Reads runs out of the folder's store, and starts nothing. `None` when there is no store yet.
pub fn read_store<T>(
    global: &Global,
    read: impl FnOnce(&StoredRuns<'_>) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let settings = settings(global)?;
    if !is_store(&settings.store) {
        return Ok(None);
    }
    let store = SledStore::open(settings.store_options())?;
    read(&StoredRuns::new(&store)).map(Some)
}

fn is_store(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

/// No such run, because there are none.
pub fn no_run(prefix: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("no run \"{prefix}\"")).help("`jr2 runs` lists them")
}
