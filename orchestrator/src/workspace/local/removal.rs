//! The end of a Sandbox's files: branches saved first (decision 47), then everything goes but what could not be saved.

use super::LocalProvider;
use super::environment::marks;
use super::layout::{Layout, Place};
use super::lifecycle::{load, remove_tree, save, slots};
use super::process;
use super::record::{Record, Stage};
use crate::workspace::branches::save_slot;
use crate::workspace::git::{Git, refused};
use crate::workspace::{ProvisionError, SavedBranch};
use jr2_shared::crash::{self, Point};

/// Saves and removes Sandboxes of one state folder.
#[derive(Clone)]
pub(super) struct Removal {
    git: Git,
    layout: Layout,
}

impl LocalProvider {
    pub(super) fn removal(&self) -> Removal {
        Removal { git: self.git.clone(), layout: self.layout.clone() }
    }
}

impl Removal {
    /// Ends what runs in the Sandbox, saves its branches and removes it. May be cut anywhere and is simply called again.
    /// `unseen`: no Agent has seen it, so there is nothing to save.
    pub async fn remove(&self, mut record: Record, unseen: bool) -> Result<Vec<SavedBranch>, ProvisionError> {
        let name = record.spec.name.clone();
        let place = self.layout.place(&name);
        let left = process::end_all(record.process.as_ref(), &marks(&place, record.cgroup.as_ref())).await;
        if left > 0 {
            return Err(refused("processes-left", format!("{left} processes of the Sandbox `{name}` would not end")));
        }
        if let Some(cgroup) = &record.cgroup {
            cgroup.remove().await;
        }
        let saved = match &record.stage {
            Stage::Gone { saved } => saved.clone(),
            Stage::Cloning => Vec::new(),
            Stage::Cloned if unseen => Vec::new(),
            Stage::Cloned if std::fs::symlink_metadata(&place.dir).is_err() => Vec::new(),
            Stage::Cloned => self.save_branches(&record, &place).await?,
        };
        if saved.iter().any(|branch| branch.kept.is_some()) {
            remove_tree(&place.sockets).await?;
            tracing::warn!(sandbox = %name, "sandbox.kept");
            return Ok(saved);
        }
        // Written before anything is removed: a repeat finds the branches' new homes and goes on removing.
        record.stage = Stage::Gone { saved: saved.clone() };
        record.process = None;
        save(&record, &place)?;
        crash::point(Point::BranchesSaved);
        for path in [&place.dir, &place.sockets] {
            remove_tree(path).await?;
        }
        for log in [place.log.clone(), place.log.with_extension("log.1")] {
            let _ = std::fs::remove_file(log);
        }
        tracing::info!(sandbox = %name, branches = saved.len(), "sandbox.removed");
        Ok(saved)
    }

    /// A Sandbox is lost for good: what is left of it goes. Answers a sentence on where its work is.
    pub async fn after_loss(&self, name: &str) -> String {
        let place = self.layout.place(name);
        let record = match load(&place) {
            Ok(Some(record)) => record,
            Ok(None) => return String::new(),
            Err(error) => return format!("; {}", error.message),
        };
        let stood = place.is_there();
        match self.remove(record, false).await {
            Ok(saved) => {
                if !saved.iter().any(|branch| branch.kept.is_some()) {
                    // Whoever asks for it again hears that it is not known: it is lost either way.
                    let _ = std::fs::remove_file(&place.record);
                }
                if stood { format!("; {}", whereabouts(&saved)) } else { String::new() }
            }
            Err(error) => format!("; {}", error.message),
        }
    }

    async fn save_branches(&self, record: &Record, place: &Place) -> Result<Vec<SavedBranch>, ProvisionError> {
        let mut saved = Vec::new();
        for slot in slots(&record.spec, place)? {
            let scratch = self.layout.scratch(&format!("{}-{}", record.spec.name, slot.binding.slot));
            let branches = save_slot(&self.git, &slot, &scratch, &self.layout.branches()).await.map_err(|e| {
                let message = format!(
                    "the branch `{}` of slot `{}` could not be saved, so the Workspace is kept at {}: {e}",
                    record.spec.branch,
                    slot.binding.slot,
                    place.dir.display()
                );
                refused("branch-not-saved", message)
            })?;
            saved.extend(branches);
        }
        for branch in saved.iter_mut().filter(|branch| !branch.left_out.is_empty()) {
            branch.kept = Some(place.dir.display().to_string());
        }
        Ok(saved)
    }
}

/// Where the branches went, for people.
fn whereabouts(saved: &[SavedBranch]) -> String {
    if saved.is_empty() {
        return "it held no branch to save".to_owned();
    }
    let each = saved.iter().map(|branch| {
        let text = format!("branch {} is saved in {}", branch.branch, branch.repository);
        match branch.left_out_words() {
            Some(words) => format!("{text} ({words})"),
            None => text,
        }
    });
    each.collect::<Vec<_>>().join("; ")
}
