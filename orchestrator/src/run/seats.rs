//! What Agents ask of a run: their surface and their picks, each in its own scope (spec 7.2).

use super::core::{Input, Reply, surface_refusal};
use super::host::{Host, HostError, split_event};
use super::task::Message;
use jr2_shared::ids::RunId;
use jr2_shared::surface::{PickAnswer, Surface};
use serde_json::Value;
use tokio::sync::oneshot;

impl Host {
    /// The surface of a conversation (spec P-2, P-3). `caller`: the Sandbox that asks; `None` = the instance token.
    pub async fn surface(&self, iid: &str, caller: Option<&str>) -> Result<Surface, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let (surface, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        Ok(surface)
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
            Some(Reply::Pick(answer)) => Ok(Ok(answer)),
            Some(Reply::Refused { status, error, allowed }) => Ok(Err(PickRefusal { status, error, allowed })),
            _ => Err(HostError::NotFound(surface_refusal(iid))),
        }
    }

    /// The answer to an earlier delivery of a live Turn, for a Harness that asks again (decision 13).
    pub async fn delivery(
        &self,
        iid: &str,
        caller: Option<&str>,
        delivery: &str,
    ) -> Result<Option<PickAnswer>, HostError> {
        let (_, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        let row = self.row(&run_of(iid))?;
        Ok(super::core::kept_delivery(&row, iid, delivery))
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
