//! What Agents ask of a run: their surface and their picks, each in its own scope (spec 7.2).

use super::core::{Delivery, Input, Reply, surface_refusal};
use super::host::{Host, HostError, split_event};
use super::task::Message;
use super::{Actor, InvokedKind, Row};
use jr2_shared::crash::{self, Point};
use jr2_shared::ids::RunId;
use jr2_shared::repo::{parse_repo_url, repo_key};
use jr2_shared::surface::{PickAnswer, Surface};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a poll for an outstanding pick's answer is held (decision 13).
const DELIVERY_WAIT: Duration = Duration::from_secs(25);

impl Host {
    /// The Sandbox a token belongs to.
    pub fn sandbox_of(&self, token: &str) -> Option<String> {
        self.shared.provider.sandbox_of(token)
    }

    /// Brings a repository up to date in a Sandbox (spec 12.2).
    pub async fn fetch(&self, sandbox: &str, identity: &str) -> Result<(), HostError> {
        self.shared.provider.fetch(sandbox, identity).await.map_err(|error| match error.reason.as_str() {
            "sandbox-unknown" | "repo-unknown" => HostError::NotFound(error.message),
            _ => HostError::Invalid { message: error.to_string(), problems: Vec::new() },
        })
    }

    /// Repositories of live runs: key, identity, and the Sandboxes that hold a clone.
    pub fn repos(&self) -> Result<Vec<Value>, HostError> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        self.shared.store.visit_rows(&mut |_: RunId, bytes| {
            let row = bytes.ok().and_then(|b| serde_json::from_slice::<Row>(&b).ok());
            if let Some(row) = row.filter(|r| !r.status.is_ended()) {
                repos_of(&row.root, &mut found);
            }
        })?;
        Ok(found
            .into_iter()
            .map(|(identity, sandboxes)| {
                json!({ "key": repo_key(&identity), "identity": identity, "sandboxes": sandboxes })
            })
            .collect())
    }

    /// The surface of a conversation (spec P-2, P-3). `caller`: the Sandbox that asks; `None` = the instance token.
    pub async fn surface(&self, iid: &str, caller: Option<&str>, first: bool) -> Result<Surface, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let (surface, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        if !first {
            return Ok(surface);
        }
        // Durable before the answer leaves: what was read is never taken for unread after a crash.
        self.apply(&run_of(iid), Input::SurfaceRead { iid: iid.to_owned() }).await?;
        crash::point(Point::SurfaceSaved);
        Ok(self.registration(iid).await?.0)
    }

    async fn registration(&self, iid: &str) -> Result<(Surface, Option<String>), HostError> {
        let gone = || HostError::NotFound(surface_refusal(iid));
        let inbox = self.inbox(&run_of(iid)).map_err(|_| gone())?.ok_or_else(gone)?;
        let (reply, answered) = oneshot::channel();
        inbox.send(Box::new(Message::Surface(iid.to_owned(), reply))).map_err(|_| gone())?;
        answered.await.ok().flatten().ok_or_else(gone)
    }

    /// A pick (spec P-4, decision 34).
    pub async fn pick(
        &self,
        iid: &str,
        caller: Option<&str>,
        body: Value,
        pick: Option<String>,
    ) -> Result<Result<PickAnswer, PickRefusal>, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let (_, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        let (event, payload) = split_event(body)?;
        let input = Input::Pick { iid: iid.to_owned(), pick, event, payload };
        match self.apply(&run_of(iid), input).await? {
            Some(Reply::Pick(answer)) => {
                crash::point(Point::PickSaved);
                Ok(Ok(answer))
            }
            Some(Reply::Refused { status, error, allowed }) => Ok(Err(PickRefusal { status, error, allowed })),
            _ => Err(HostError::NotFound(surface_refusal(iid))),
        }
    }

    /// The answer to an earlier delivery of a live Turn, waited for while its pick is outstanding; `None` = it still is
    /// after 25 s (decision 13). Asking again changes nothing.
    pub async fn delivery(
        &self,
        iid: &str,
        caller: Option<&str>,
        delivery: &str,
    ) -> Result<Option<PickAnswer>, HostError> {
        self.delivery_within(iid, caller, delivery, DELIVERY_WAIT).await
    }

    pub(super) async fn delivery_within(
        &self,
        iid: &str,
        caller: Option<&str>,
        delivery: &str,
        wait: Duration,
    ) -> Result<Option<PickAnswer>, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let gone = || HostError::NotFound(surface_refusal(iid));
        let (_, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        let inbox = self.inbox(&run_of(iid))?.ok_or_else(gone)?;
        let (reply, answered) = oneshot::channel();
        let ask = Message::Delivery(iid.to_owned(), delivery.to_owned(), reply);
        inbox.send(Box::new(ask)).map_err(|_| gone())?;
        let Ok(answered) = tokio::time::timeout(wait, answered).await else { return Ok(None) };
        match answered.map_err(|_| HostError::Stopping)? {
            Delivery::Answered(answer) => Ok(Some(*answer)),
            Delivery::Outstanding => Ok(None),
            Delivery::Unknown => Err(HostError::NotFound("no such delivery of this Turn".to_owned())),
            Delivery::Gone => Err(gone()),
        }
    }
}

/// A refused pick (spec P-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickRefusal {
    /// HTTP status.
    pub status: u16,
    /// Why.
    pub error: String,
    /// Allowed now.
    pub allowed: Option<Vec<String>>,
}

fn run_of(iid: &str) -> RunId {
    RunId(iid.split('/').next().unwrap_or_default().to_owned())
}

/// Spec P-3: a Sandbox speaks only for registrations that name it.
fn check_scope(iid: &str, caller: Option<&str>, sandbox: Option<&str>) -> Result<(), HostError> {
    let Some(caller) = caller else { return Ok(()) };
    let named = sandbox.unwrap_or(crate::workspace::INSTANCE_HARNESS);
    if caller == named {
        return Ok(());
    }
    Err(HostError::Forbidden(format!("this token cannot speak for instance \"{iid}\"")))
}

fn repos_of(actor: &Actor, found: &mut BTreeMap<String, Vec<String>>) {
    if let Some(workspace) = &actor.workspace {
        for repo in &workspace.spec.repos {
            if let Ok(url) = parse_repo_url(&repo.url) {
                found.entry(url.identity).or_default().push(workspace.spec.name.clone());
            }
        }
    }
    for invoked in actor.invoked.values() {
        if let InvokedKind::Run(child) = &invoked.kind {
            repos_of(child, found);
        }
    }
}
