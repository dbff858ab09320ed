//! Who answers a try's Agent: the scripted model, or a real one.

use super::super::exit::Failure;
use super::super::programs;
use crate::config::provider;
use crate::workspace::{ProviderBinding, ProviderKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the scripted model does.
const SCRIPT: &str = include_str!("../../../../examples/fix-test/model.json");
/// The model it plays.
const SCRIPTED_MODEL: &str = "gpt-5-mini";
/// The model that is asked for when a server lists none.
const USUAL_MODEL: &str = "gpt-5-mini";
/// Variable with the key of a real model.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// How long a server may take to list its models.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Who answers, as the plan keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModelPlan {
    /// `jr2-conformance model`.
    Scripted,
    /// A server of the user's.
    #[serde(rename_all = "camelCase")]
    Real {
        /// Its base URL.
        base_url: String,
        /// The model there.
        model: String,
        /// Its key is in the environment.
        keyed: bool,
    },
}

impl ModelPlan {
    /// Is it the scripted one?
    pub fn is_scripted(&self) -> bool {
        *self == Self::Scripted
    }

    /// What the workflow's Agent is bound to.
    pub fn bound(&self) -> String {
        match self {
            Self::Scripted => format!("scripted/{SCRIPTED_MODEL}"),
            Self::Real { model, .. } => format!("openai/{model}"),
        }
    }
}

/// Chooses by option and environment.
pub async fn choose(url: Option<&str>, model: Option<&str>) -> Result<ModelPlan, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
    let keyed = set(KEY_VARIABLE).is_some();
    let base_url = match (url, set("OPENAI_BASE_URL").filter(|_| keyed)) {
        (Some(url), _) => url.to_owned(),
        (None, Some(url)) => url,
        (None, None) if model.is_some() => {
            return Err(Failure::usage("--model needs a server").help("name it with --model-url"));
        }
        (None, None) => return Ok(ModelPlan::Scripted),
    };
    let base_url = base_url.trim().trim_end_matches('/').to_owned();
    if !(base_url.starts_with("http://") || base_url.starts_with("https://")) {
        return Err(Failure::usage(format!("`{base_url}` is no http or https URL")));
    }
    let model = match model {
        Some(model) => model.to_owned(),
        None => first_model(&base_url).await.unwrap_or_else(|| USUAL_MODEL.to_owned()),
    };
    Ok(ModelPlan::Real { base_url, model, keyed })
}

/// The first model a server lists.
async fn first_model(base: &str) -> Option<String> {
    let builder = reqwest::Client::builder().timeout(LIST_LIMIT);
    let plain = base.starts_with("http://");
    let builder = if plain { builder.tls_danger_accept_invalid_certs(true) } else { builder };
    let mut request = builder.build().ok()?.get(format!("{base}/models"));
    if let Ok(key) = std::env::var(KEY_VARIABLE) {
        request = request.bearer_auth(key.trim());
    }
    let list: Value = request.send().await.ok()?.json().await.ok()?;
    list["data"].get(0)?["id"].as_str().map(str::to_owned)
}

/// A model that answers as long as this lives.
pub struct Model {
    plan: ModelPlan,
    url: String,
    process: Option<Child>,
}

impl Model {
    /// Starts it, when it is ours to start.
    pub fn start(plan: &ModelPlan, dir: &Path) -> Result<Self, Failure> {
        match plan {
            ModelPlan::Real { base_url, .. } => Ok(Self { plan: plan.clone(), url: base_url.clone(), process: None }),
            ModelPlan::Scripted => {
                let (process, url) = scripted(dir)?;
                Ok(Self { plan: plan.clone(), url, process: Some(process) })
            }
        }
    }

    /// The provider of this process: a scripted model has another port each time, and nobody notices.
    pub fn binding(&self) -> ProviderBinding {
        match &self.plan {
            ModelPlan::Scripted => provider("scripted", &self.url, "generic", ProviderKey::None),
            ModelPlan::Real { keyed, .. } => {
                let key = if *keyed { ProviderKey::Env(KEY_VARIABLE.to_owned()) } else { ProviderKey::None };
                provider("openai", &self.url, "generic", key)
            }
        }
    }

    /// For people.
    pub fn about(&self) -> String {
        match &self.plan {
            ModelPlan::Scripted => {
                "scripted: it follows a script, and its tool calls are real (--model-url for a real one)".to_owned()
            }
            ModelPlan::Real { model, base_url, .. } => format!("{model} at {base_url}"),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It keeps nothing, so it needs no goodbye.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Starts `jr2-conformance model` on a free port and reads where it listens.
fn scripted(dir: &Path) -> Result<(Child, String), Failure> {
    let program = programs::required("jr2-conformance")?;
    let script = dir.join("model.json");
    let failed =
        |what: &str, error: &dyn std::fmt::Display| Failure::failed(format!("the scripted model {what}: {error}"));
    std::fs::write(&script, SCRIPT).map_err(|e| failed("has no script", &e))?;
    let log = std::fs::File::create(dir.join("model.log")).map_err(|e| failed("has no log", &e))?;
    let mut command = Command::new(&program);
    command.arg("model").arg("--script").arg(&script).args(["--listen", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    #[allow(unsafe_code)]
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| {
            // A killed `jr2` leaves no model behind.
            let kill = rustix::process::Signal::KILL;
            rustix::process::set_parent_process_death_signal(Some(kill)).map_err(Into::into)
        });
    }
    let mut process = command.spawn().map_err(|e| failed("cannot be started", &e))?;
    let mut line = String::new();
    let read = process.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let hello: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
    match (read, hello["url"].as_str()) {
        (Some(Ok(_)), Some(url)) => Ok((process, url.to_owned())),
        _ => {
            let _ = process.kill();
            let _ = process.wait();
            Err(failed("said no address", &format!("see {}", dir.join("model.log").display())))
        }
    }
}
