//! The sweep: runs that ended a week ago, texts nobody names, Sandboxes of no live run (spec S-12, decision 42).

use super::host::Host;
use super::shared::lock;
use super::{Actor, InvokedKind, Row, Status};
use crate::store::Save;
use jr2_shared::ids::RunId;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Ended runs are kept this long (spec S-12).
pub const KEEP_ENDED_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// How often ended runs and orphaned Sandboxes are swept (spec S-12, decision 42).
pub(super) const SWEEP_EVERY: Duration = Duration::from_hours(1);
/// A faulted run's Sandbox stays this long for a person to look (spec K-9: the idle timeout).
const FAULTED_SANDBOX_KEEP_MS: u64 = 30 * 60 * 1_000;

impl Host {
    /// Removes runs that ended a week ago and Sandboxes of no live run.
    pub async fn sweep(&self) {
        let _no_new_sandbox = self.shared.placing.write().await;
        let now = self.shared.clock.now_ms();
        let mut found = Swept::default();
        let visited = self.shared.store.visit_rows(&mut |run, bytes| match bytes {
            Ok(bytes) => found.row(run, &bytes, now),
            Err(_) => found.unreadable = true,
        });
        if visited.is_err() || found.unreadable {
            return; // an unread row may name a text or a Sandbox: nothing is removed on a guess
        }
        for run in found.over {
            let save = Save { run: Some(run.clone()), delete: true, ..Save::default() };
            if self.shared.store.save(save).await.is_ok() {
                self.shared.runs.write().unwrap_or_else(PoisonError::into_inner).remove(&run);
            }
        }
        self.drop_texts(&found.programs).await;
        let mut live = found.sandboxes;
        live.extend(lock(&self.shared.sandboxes).keys().cloned());
        let gone = self.shared.provider.sweep(&live).await;
        if gone > 0 {
            tracing::info!(gone, "Sandboxes of no live run were removed");
        }
    }

    /// Pinned texts of no row, no live task and no deployed workflow go.
    async fn drop_texts(&self, named: &BTreeSet<String>) {
        let deployed: BTreeSet<String> = self.programs().values().map(|p| p.hash.clone()).collect();
        let _no_start = self.shared.starting.lock().await;
        let mut drop_texts = self.shared.store.texts().unwrap_or_default();
        drop_texts.retain(|hash| {
            let live = lock(&self.shared.pinned).get(hash).is_some_and(|p| Arc::strong_count(p) > 1);
            !named.contains(hash) && !deployed.contains(hash) && !live
        });
        if !drop_texts.is_empty() {
            lock(&self.shared.pinned).retain(|hash, _| !drop_texts.contains(hash));
            self.shared.store.save(Save { drop_texts, ..Save::default() }).await.ok();
        }
    }
}

/// What one look over all rows found.
#[derive(Default)]
struct Swept {
    over: Vec<RunId>,
    programs: BTreeSet<String>,
    sandboxes: Vec<String>,
    unreadable: bool,
}

impl Swept {
    fn row(&mut self, run: RunId, bytes: &[u8], now: u64) {
        let Ok(row) = serde_json::from_slice::<Row>(bytes) else {
            self.unreadable = true;
            return;
        };
        let ended = row.ended.unwrap_or(now);
        if row.status.is_ended() && row.deletes.is_empty() && now.saturating_sub(ended) > KEEP_ENDED_MS {
            self.over.push(run);
            return;
        }
        self.programs.insert(row.program.clone());
        self.programs.extend(row.first_program.clone());
        let faulted = row.status == Status::Error && now.saturating_sub(ended) < FAULTED_SANDBOX_KEEP_MS;
        if !row.status.is_ended() || faulted {
            sandboxes_of(&row.root, &mut self.sandboxes);
        }
        self.sandboxes.extend(row.kept.iter().cloned());
        self.sandboxes.extend(row.deletes.iter().map(|d| d.spec.name.clone()));
    }
}

fn sandboxes_of(actor: &Actor, names: &mut Vec<String>) {
    names.extend(actor.workspace.iter().map(|w| w.spec.name.clone()));
    for invoked in actor.invoked.values() {
        if let InvokedKind::Run(child) = &invoked.kind {
            sandboxes_of(child, names);
        }
    }
}
