//! What a Workspace's branch changed, for a person at a Gate.

use super::LocalProvider;
use crate::workspace::git::{Slot, refused};
use crate::workspace::{ProvisionError, SandboxSpec};
use std::ffi::OsStr;
use std::path::Path;

/// Where the scratch repository keeps the branch.
const SCRATCH_REF: &str = "refs/jr2/branch";

impl LocalProvider {
    /// `git diff` between a commit and the head of a slot's branch. The clone is in an Agent's hands, so it is only fetched
    /// from; the diff is made in a scratch repository of our own.
    pub async fn diff(&self, spec: &SandboxSpec, slot: &str, base: &str) -> Result<String, ProvisionError> {
        let place = self.layout.place(&spec.name);
        let binding = spec.repos.iter().find(|repo| repo.slot == slot);
        let binding = binding.ok_or_else(|| refused("slot-refused", format!("there is no slot `{slot}`")))?;
        let slot = Slot::new(binding, &place.work, &spec.branch)?;
        let scratch = self.layout.scratch(&format!("diff-{}", spec.name));
        remove(&scratch).await?;
        let made = self.diff_in(&scratch, &slot, base).await;
        remove(&scratch).await?;
        made
    }

    async fn diff_in(&self, scratch: &Path, slot: &Slot, base: &str) -> Result<String, ProvisionError> {
        let failed = |e: crate::workspace::git::GitError| refused("diff-failed", e.to_string());
        tokio::fs::create_dir_all(scratch).await.map_err(|e| refused("diff-failed", e.to_string()))?;
        self.git.text(scratch, &["init", "--bare", "--quiet", "--template=", "."]).await.map_err(failed)?;
        let clone = slot.clone_dir();
        let refspec = format!("+refs/heads/{}:{SCRATCH_REF}", slot.branch);
        let fetch: [&OsStr; 7] = [
            "fetch".as_ref(),
            "--quiet".as_ref(),
            "--no-tags".as_ref(),
            "--update-shallow".as_ref(),
            "--".as_ref(),
            clone.as_os_str(),
            refspec.as_ref(),
        ];
        self.git.text(scratch, &fetch).await.map_err(failed)?;
        let range = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", base, SCRATCH_REF, "--"];
        self.git.text(scratch, &range).await.map_err(failed)
    }
}

async fn remove(path: &Path) -> Result<(), ProvisionError> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(refused("diff-failed", error.to_string())),
        _ => Ok(()),
    }
}
