//! The door: dispatches one input, holds the macrostep's atomicity and the row's bound.

use super::machine::Work;
use super::{Facts, Input, Outcome, Reply};
use crate::run::{ROW_MAX_BYTES, Row};
use crate::workflow::Program;

/// Applies one input. Total: an input that fits nothing changes nothing.
pub fn apply(program: &Program, row: &Row, input: &Input, facts: Facts) -> Outcome {
    let mut work = Work::new(program, row.clone(), facts);
    work.dispatch(input);
    work.finish(row, input)
}

impl Work<'_> {
    fn dispatch(&mut self, input: &Input) {
        if let Input::Aborted { .. } | Input::TornDown { .. } | Input::TeardownFailed { .. } = input {
            return self.settle_leftover(input); // these come after a run ended too
        }
        if self.row.status.is_ended() {
            if let Input::Provisioned { .. } | Input::ProvisionFailed { .. } = input {
                return self.settle_leftover(input);
            }
            return self.refuse_ended(input);
        }
        match input {
            Input::Start => self.start_run(),
            Input::Gate { gate, event, payload, activation, key } => {
                self.gate(gate, event, payload, activation.as_deref(), key.as_deref());
            }
            Input::External { event, payload, key } => self.external(event, payload, key.as_deref()),
            Input::Cancel { keep } => self.cancel(*keep),
            Input::Pick { iid, pick, event, payload } => self.pick(iid, pick.as_deref(), event, payload),
            Input::SurfaceRead { iid } => self.surface_read(iid),
            Input::Turn { serial, input } => self.turn_report(*serial, input.clone()),
            Input::Done { serial, result } => self.step_done(*serial, result),
            Input::Provisioned { sandbox, provisioned } => self.provisioned(sandbox, provisioned),
            Input::ProvisionFailed { sandbox, reason, message } => self.provision_failed(sandbox, reason, message),
            Input::SandboxLost { sandbox, reason, message } => self.sandbox_lost(sandbox, reason, message),
            Input::Tick { hold } => self.tick(*hold),
            Input::Raise { actor, event } => self.raise(*actor, event),
            Input::ChildEnded { serial, end } => self.child_ended(*serial, end),
            Input::Again { serial } => self.again(*serial),
            // Adoption needs both programs: the task does it.
            Input::Adopt { .. } | Input::Aborted { .. } | Input::TornDown { .. } | Input::TeardownFailed { .. } => {}
        }
    }

    fn finish(mut self, before: &Row, input: &Input) -> Outcome {
        let from_queue = before.queue.front() == Some(input);
        if from_queue && self.row.queue.front() == Some(input) {
            self.row.queue.pop_front();
            self.changed = true;
        }
        self.settle_routes();
        if self.changed {
            self.row.clock = self.row.clock.max(self.facts.now);
            self.row.rev = before.rev + 1;
            if self.row_too_large() {
                return self.discard_too_large(before, input, from_queue);
            }
        }
        Outcome {
            row: self.row,
            changed: self.changed,
            effects: self.effects,
            feed: self.feed,
            taken: self.taken,
            reply: self.reply,
        }
    }

    /// Cheap first: a row is only weighed when its parts could reach the bound.
    fn row_too_large(&self) -> bool {
        if !self.grew {
            return false;
        }
        serde_json::to_vec(&self.row).map_or(true, |bytes| bytes.len() > ROW_MAX_BYTES)
    }

    /// Decision 36: all of it is discarded; a request is refused, anything else ends the run in fault.
    fn discard_too_large(self, before: &Row, input: &Input, from_queue: bool) -> Outcome {
        let error = format!("the run's row would be larger than {ROW_MAX_BYTES} bytes");
        let mut again = Work::new(self.program, before.clone(), self.facts);
        match input {
            Input::Pick { .. } => again.reply = Reply::Refused { status: 400, error, allowed: None },
            Input::Gate { .. } | Input::External { .. } => again.answer(400, serde_json::json!({ "error": error })),
            _ => {
                again.fault_run(&error);
                if from_queue {
                    again.row.queue.clear();
                }
                again.row.clock = again.row.clock.max(self.facts.now);
                again.row.rev = before.rev + 1;
            }
        }
        Outcome {
            row: again.row,
            changed: again.changed,
            effects: again.effects,
            feed: again.feed,
            taken: Vec::new(),
            reply: again.reply,
        }
    }
}
