//! A fetch for a Sandbox: fetched outside with the Orchestrator's sealed git, taken over inside the fence. The clone is in
//! an Agent's hands, so no git of ours ever runs on its configuration.

use super::LocalProvider;
use super::record::Record;
use crate::run::core::{DoRequest, DoResult};
use crate::workspace::ProvisionError;
use crate::workspace::git::{Slot, refused};
use jr2_shared::repo::parse_repo_url;
use std::path::Path;

/// Most milliseconds the Sandbox's own git may take to read the bundle.
const TAKE_OVER_MS: u64 = 120_000;

impl LocalProvider {
    /// Brings the source's branches of the slots with this identity up to date as `refs/remotes/origin/*`.
    pub(super) async fn fetch_held(&self, name: &str, identity: &str) -> Result<(), ProvisionError> {
        let place = self.layout.place(name);
        let record = Record::load(&place.record).map_err(|e| refused("fetch-failed", e.to_string()))?;
        let record = record.ok_or_else(|| refused("sandbox-unknown", format!("there is no Sandbox `{name}`")))?;
        let mut found = false;
        for binding in &record.spec.repos {
            let Ok(url) = parse_repo_url(&binding.url) else { continue };
            if url.identity != identity {
                continue;
            }
            found = true;
            let slot = Slot::new(binding, &place.work, &record.spec.branch)?;
            let scratch = self.layout.scratch(&format!("fetch-{name}"));
            let bundle = place.tmp.join("origin.bundle");
            let made = self.bundle(&scratch, &url.dial, &bundle).await;
            tokio::fs::remove_dir_all(&scratch).await.ok();
            made?;
            self.take_over(name, &slot.clone_dir(), &bundle).await?;
        }
        if found {
            return Ok(());
        }
        Err(refused("repo-unknown", format!("Sandbox `{name}` has no repository `{identity}`")))
    }

    async fn bundle(&self, scratch: &Path, dial: &str, bundle: &Path) -> Result<(), ProvisionError> {
        let failed = |e: &dyn std::fmt::Display| refused("fetch-failed", e.to_string());
        tokio::fs::remove_dir_all(scratch).await.ok();
        tokio::fs::create_dir_all(scratch).await.map_err(|e| failed(&e))?;
        tokio::fs::remove_file(bundle).await.ok();
        self.git.text(scratch, &["init", "--bare", "--quiet", "--template=", "."]).await.map_err(|e| failed(&e))?;
        let fetch = ["fetch", "--quiet", "--no-tags", "--", dial, "+refs/heads/*:refs/remotes/origin/*"];
        self.git.text(scratch, &fetch).await.map_err(|e| failed(&e))?;
        let path = bundle.display().to_string();
        let create = ["bundle", "create", "--quiet", &path, "--all"];
        self.git.text(scratch, &create).await.map_err(|e| failed(&e))?;
        Ok(())
    }

    async fn take_over(&self, name: &str, clone: &Path, bundle: &Path) -> Result<(), ProvisionError> {
        let request = DoRequest::Command {
            command: "git fetch --quiet --no-tags -- \"$BUNDLE\" '+refs/remotes/origin/*:refs/remotes/origin/*'"
                .to_owned(),
            cwd: Some(clone.display().to_string()),
            env: vec![("BUNDLE".to_owned(), bundle.display().to_string())],
            timeout_ms: TAKE_OVER_MS,
        };
        let end = self.run_step(name, &format!("fetch/{name}"), 0, &request).await;
        tokio::fs::remove_file(bundle).await.ok();
        match end {
            DoResult::Ok(_) => Ok(()),
            DoResult::Failed { reason, detail } => {
                Err(refused("fetch-failed", format!("{reason}: {}", detail["output"].as_str().unwrap_or_default())))
            }
        }
    }
}
