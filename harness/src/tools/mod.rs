//! The Working tools: `read`, `write`, `edit`, `bash`, `grep`, `glob`, rooted at the Frame's directory (spec 6.7).
//!
//! The file tools work inside the Harness's process and open every path beneath the root. `bash` runs a child that the
//! kernel confines (`isolate`) and that dies as a whole with its call (`supervise`).

mod bash;
mod capture;
mod edit;
pub mod isolate;
pub mod limits;
mod read;
mod root;
mod search;
mod seccomp;
mod specs;
mod supervise;
pub mod surroundings;
#[cfg(test)]
mod testing;

pub use surroundings::Surroundings;

use crate::guard::Calls;
use crate::model::ToolSpec;
use jr2_shared::harness::Access;
use root::Root;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Bounds of the tools that a deployment may choose; every other bound is a constant beside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// `bash` without a `timeout`.
    pub bash_default: Duration,
    /// The longest `timeout` that `bash` grants.
    pub bash_max: Duration,
}

impl Default for ToolLimits {
    /// Two minutes, and an hour: a test suite fits, a forgotten server does not stay for ever.
    fn default() -> Self {
        Self { bash_default: Duration::from_mins(2), bash_max: Duration::from_hours(1) }
    }
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutcome {
    /// For the model.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
    /// The id of the memory kill whose verdict this is (spec M-13).
    pub kill: Option<String>,
}

impl From<Result<String, String>> for ToolOutcome {
    fn from(result: Result<String, String>) -> Self {
        let is_error = result.is_err();
        Self { text: result.unwrap_or_else(|text| text), is_error, kill: None }
    }
}

/// The Working tools of one root.
#[derive(Debug)]
pub struct Toolbox {
    root: PathBuf,
    access: Access,
    limits: ToolLimits,
    surroundings: Surroundings,
    /// Where `bash` calls stand while they run, for the memory guard.
    calls: Arc<Calls>,
    /// Built at the first `bash` call, then shared by all.
    fence: tokio::sync::OnceCell<Arc<isolate::Fence>>,
}

impl Toolbox {
    /// Tools rooted at `root`, an absolute directory; it is looked at only when a tool runs. What surrounds the root is
    /// read from the process's environment.
    pub fn new(root: PathBuf, access: Access, limits: ToolLimits) -> Self {
        let surroundings = Surroundings::from_env(&root, |name| std::env::var(name).ok());
        Self::within(root, access, limits, surroundings)
    }

    /// The same with given surroundings.
    pub fn within(root: PathBuf, access: Access, limits: ToolLimits, surroundings: Surroundings) -> Self {
        Self { root, access, limits, surroundings, calls: Arc::default(), fence: tokio::sync::OnceCell::new() }
    }

    /// The same under a memory guard that knows `calls`.
    pub fn guarded(self, calls: Arc<Calls>) -> Self {
        Self { calls, ..self }
    }

    /// The tools of an access, always in the same bytes: read, write, edit, bash, grep, glob less what it withholds.
    pub fn specs(access: Access) -> Vec<ToolSpec> {
        specs::all(ToolLimits::default()).into_iter().filter(|spec| allows(access, &spec.name)).collect()
    }

    /// Runs one tool. `abort` turning `true` ends it and everything it started; a dropped sender never does.
    pub async fn run(&self, name: &str, arguments: &Value, abort: watch::Receiver<bool>) -> ToolOutcome {
        if !allows(self.access, name) {
            let have: Vec<_> = Self::specs(self.access).into_iter().map(|spec| spec.name).collect();
            return Err(format!("There is no tool {name:?}; you have: {}.", have.join(", "))).into();
        }
        if *abort.borrow() {
            return Err(ABORTED.to_owned()).into();
        }
        match name {
            "bash" => return self.bash(arguments, abort).await.unwrap_or_else(|text| Err(text).into()),
            "read" => self.blocking(arguments, abort, read::run).await,
            "write" => self.blocking(arguments, abort, edit::write).await,
            "edit" => self.blocking(arguments, abort, edit::edit).await,
            "grep" => self.blocking(arguments, abort, search::grep).await,
            _ => self.blocking(arguments, abort, search::glob).await,
        }
        .into()
    }

    async fn bash(&self, arguments: &Value, abort: watch::Receiver<bool>) -> Result<ToolOutcome, String> {
        let arguments = parse(arguments)?;
        let root = Root::open(&self.root, self.surroundings.sandbox.as_deref())?;
        let fence = self
            .fence
            .get_or_try_init(|| async {
                let surroundings = self.surroundings.clone();
                let root = root.path().to_owned();
                let build = move || surroundings.prepare().and_then(|()| isolate::Fence::build(&surroundings, &root));
                tokio::task::spawn_blocking(build).await.map_err(|e| e.to_string())?.map(Arc::new)
            })
            .await?;
        bash::run(root.path(), &self.surroundings, fence, self.limits, arguments, abort, self.calls.begin()).await
    }

    /// Runs a file tool off the async threads. An abort is seen between its steps.
    async fn blocking<A: DeserializeOwned + Send + 'static>(
        &self,
        arguments: &Value,
        mut abort: watch::Receiver<bool>,
        tool: fn(&Job, A) -> Result<String, String>,
    ) -> Result<String, String> {
        let arguments = parse(arguments)?;
        let job = Job {
            root: Root::open(&self.root, self.surroundings.sandbox.as_deref())?,
            sandbox: self.surroundings.sandbox.clone(),
            abort: abort.clone(),
        };
        let mut work = tokio::task::spawn_blocking(move || tool(&job, arguments));
        let broke = |error| Err(format!("The tool broke: {error}"));
        tokio::select! {
            result = &mut work => return result.unwrap_or_else(broke),
            Ok(_) = abort.wait_for(|aborted| *aborted) => {}
        }
        // It sees the abort at its next step. What it did until then is told: nothing changes a file after its answer.
        match tokio::time::timeout(FILE_GRACE, work).await {
            Ok(result) => result.unwrap_or_else(broke),
            Err(_) => Err(ABORTED.to_owned()),
        }
    }
}

/// What a file tool works with.
struct Job {
    root: Root,
    /// Nothing above it is looked at for ignore files.
    sandbox: Option<PathBuf>,
    abort: watch::Receiver<bool>,
}

impl Job {
    /// An error once the call is aborted: long loops ask at each step.
    fn go_on(&self) -> Result<(), String> {
        if *self.abort.borrow() { Err(ABORTED.to_owned()) } else { Ok(()) }
    }
}

/// How long an aborted file tool is waited for: a disk that hangs longer must not hold the abort.
const FILE_GRACE: Duration = Duration::from_secs(5);
const ABORTED: &str = "The call was aborted.";

fn parse<A: DeserializeOwned>(arguments: &Value) -> Result<A, String> {
    let empty = Value::Object(serde_json::Map::new());
    let arguments = if arguments.is_null() { &empty } else { arguments };
    A::deserialize(arguments).map_err(|error| format!("The arguments are wrong: {error}."))
}

/// What an access withholds (spec 6.7). A `read` Agent keeps bash (spec H-24).
fn allows(access: Access, tool: &str) -> bool {
    match tool {
        "read" | "bash" | "grep" | "glob" => access != Access::None,
        "write" | "edit" => access == Access::Write,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(access: Access) -> Vec<String> {
        Toolbox::specs(access).into_iter().map(|spec| spec.name).collect()
    }

    #[test]
    fn an_access_withholds_its_tools() {
        assert_eq!(names(Access::Write), ["read", "write", "edit", "bash", "grep", "glob"]);
        assert_eq!(names(Access::Read), ["read", "bash", "grep", "glob"]);
        assert!(names(Access::None).is_empty());
    }

    /// odysseus-dev/odysseus#5202
    #[tokio::test]
    async fn f28_an_unknown_tool_is_answered_with_the_known_ones() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Toolbox::new(folder.path().into(), Access::Read, ToolLimits::default());
        for name in ["write", "python"] {
            let got = tools.run(name, &json!({}), watch::channel(false).1).await;
            let text = format!("There is no tool {name:?}; you have: read, bash, grep, glob.");
            assert_eq!(got, ToolOutcome { text, is_error: true, kill: None });
        }
    }

    #[tokio::test]
    async fn wrong_arguments_and_a_missing_root_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Toolbox::new(folder.path().join("gone"), Access::Write, ToolLimits::default());
        let got = tools.run("read", &json!({"offset": 1}), watch::channel(false).1).await;
        assert_eq!(got.text, "The arguments are wrong: missing field `path`.");
        for (name, arguments) in [("read", json!({"path": "a"})), ("bash", json!({"command": "true"}))] {
            let got = tools.run(name, &arguments, watch::channel(false).1).await;
            assert!(got.is_error && got.text.starts_with("The working directory cannot be opened"), "{}", got.text);
        }
    }

    #[tokio::test]
    async fn an_aborted_call_starts_nothing() {
        let bench = testing::Bench::new();
        for (name, arguments) in
            [("bash", json!({"command": "echo x > a"})), ("write", json!({"path": "a", "content": "x"}))]
        {
            let got = bench.tools.run(name, &arguments, watch::channel(true).1).await;
            assert_eq!(got, ToolOutcome { text: ABORTED.into(), is_error: true, kill: None });
            assert!(!bench.path("a").exists());
        }
    }

    #[test]
    fn the_specs_have_fixed_bytes() {
        assert_eq!(
            serde_json::to_string(&Toolbox::specs(Access::Write)).unwrap(),
            serde_json::to_string(&Toolbox::specs(Access::Write)).unwrap()
        );
        insta::assert_json_snapshot!("specs", Toolbox::specs(Access::Write));
    }
}
