//! The Instance Harness hears which conversations live, after the restore and every five minutes (spec S-18, decision
//! on Q16-11: the set is read off the durable rows of live runs, so a Turn that is only nudged is never freed).

use super::host::Host;
use super::{Actor, InvokedKind, Row};
use crate::workflow::Program;
use crate::workspace::INSTANCE_HARNESS;
use jr2_shared::harness::{Access, LiveConversation, LiveSet};
use jr2_shared::ids::RunId;
use std::time::Duration;

/// How often it is said (spec S-18).
const SAY_EVERY: Duration = Duration::from_mins(5);

impl Host {
    pub(super) fn spawn_live_set(&self) {
        let host = self.clone();
        tokio::spawn(async move {
            loop {
                host.say_live_set().await;
                tokio::time::sleep(SAY_EVERY).await;
            }
        });
    }

    /// Says it once. An empty set is said too, so that the last conversations go, but no Harness is started to hear it.
    pub(super) async fn say_live_set(&self) {
        let mut live = LiveSet::default();
        let mut complete = true;
        let visited = self.shared.store.visit_rows(&mut |_: RunId, bytes| {
            let row = bytes.ok().and_then(|b| serde_json::from_slice::<Row>(&b).ok());
            let Some(row) = row else {
                complete = false;
                return;
            };
            if row.status.is_ended() {
                return;
            }
            match self.shared.pinned(&row.program) {
                Ok(program) => of_row(&program, &row, &mut live.live),
                Err(_) => complete = false,
            }
        });
        // An unread row may hold conversations: freeing on a guess would lose them.
        let nobody_listens = || self.shared.provider.endpoint(INSTANCE_HARNESS).is_none();
        if visited.is_err() || !complete || (live.live.is_empty() && nobody_listens()) {
            return;
        }
        match self.shared.client(None).put_live_set(&live).await {
            Ok(freed) if freed.freed > 0 => tracing::info!(freed = freed.freed, "ended conversations were freed"),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the Instance Harness did not take the live set"),
        }
    }
}

fn of_row(program: &Program, row: &Row, live: &mut Vec<LiveConversation>) {
    let menu_only =
        |name: &str| program.workflows.values().filter_map(|w| w.agents.get(name)).any(|a| a.workspace == Access::None);
    for iid in row.conversations.keys() {
        // `<run>/<path>/<agent>[/<epoch>]` (spec A-3)
        if let Some(agent) = iid.rsplit('/').find(|part| menu_only(part)) {
            live.push(LiveConversation { agent: agent.to_owned(), instance_id: iid.clone() });
        }
    }
    of_actor(&row.root, &menu_only, live);
}

fn of_actor(actor: &Actor, menu_only: &dyn Fn(&str) -> bool, live: &mut Vec<LiveConversation>) {
    for invoked in actor.invoked.values() {
        match &invoked.kind {
            InvokedKind::Agent(turn) if menu_only(&turn.frame.agent) => {
                let instance_id = turn.iid.as_str().to_owned();
                if live.iter().all(|l| l.instance_id != instance_id) {
                    live.push(LiveConversation { agent: turn.frame.agent.clone(), instance_id });
                }
            }
            InvokedKind::Run(child) => of_actor(child, menu_only, live),
            _ => {}
        }
    }
}
