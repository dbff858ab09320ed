//! A root with tools for the tests.

use super::{Surroundings, ToolLimits, ToolOutcome, Toolbox};
use crate::guard::Calls;
use jr2_shared::harness::Access;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// A Sandbox folder with a root `work` in it.
pub struct Bench {
    pub folder: tempfile::TempDir,
    pub tools: Toolbox,
    pub calls: Arc<Calls>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Surroundings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = folder.path().join("sandbox");
        let root = sandbox.join("work");
        std::fs::create_dir_all(&root).unwrap();
        let mut surroundings = Surroundings::from_env(&root, |name| match name {
            "JR2_SANDBOX_DIR" => Some(sandbox.display().to_string()),
            "PATH" => std::env::var("PATH").ok(),
            _ => None,
        });
        change(&mut surroundings);
        let tools = Toolbox::within(root, Access::Write, ToolLimits::default(), surroundings);
        let calls = Arc::default();
        let tools = tools.guarded(Arc::clone(&calls));
        Self { folder, tools, calls }
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("sandbox/work")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub async fn run(&self, tool: &str, arguments: Value) -> ToolOutcome {
        self.tools.run(tool, &arguments, watch::channel(false).1).await
    }

    pub async fn ok(&self, tool: &str, arguments: Value) -> String {
        let got = self.run(tool, arguments).await;
        assert!(!got.is_error, "{}", got.text);
        got.text
    }

    pub async fn err(&self, tool: &str, arguments: Value) -> String {
        let got = self.run(tool, arguments).await;
        assert!(got.is_error, "{}", got.text);
        got.text
    }
}
