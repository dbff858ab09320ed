//! What isolates the commands of a run's Agents: each Sandbox's own Harness is asked, now.

use super::host::Host;
use super::shared::lock;
use futures_util::future::join_all;
use jr2_shared::ids::RunId;
use jr2_shared::isolation::Isolation;
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;

/// Longest a Harness is waited for: somebody looks at a status meanwhile.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// One Sandbox's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SandboxIsolation {
    /// Its name.
    pub sandbox: String,
    /// What its Harness says; none when it did not answer, or is too old to know.
    pub isolation: Option<Isolation>,
}

impl Host {
    /// What isolates the commands in each Sandbox of a run, in the order of their names.
    pub async fn isolation(&self, run: &RunId) -> Vec<SandboxIsolation> {
        let mut names: Vec<String> = lock(&self.shared.sandboxes)
            .iter()
            .filter(|(_, owner)| *owner == run)
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        let asked = names.into_iter().map(|sandbox| async move {
            let client = self.shared.client(Some(&sandbox));
            let isolation = timeout(ASK_LIMIT, client.isolation()).await.ok().and_then(Result::ok);
            SandboxIsolation { sandbox, isolation }
        });
        join_all(asked).await
    }
}
