//! A running Submission goes on: what its loop asked for happens, and it hears of it.

use super::{Choice, allowed};
use crate::world::World;
use jr2_harness::conversation::Entry;
use jr2_harness::menu::{Menu, PickOutcome, PickRefusal, Reread, SurfaceRead};
use jr2_harness::model::{Finish, ModelAnswer, ToolCall};
use jr2_harness::tools::ToolOutcome;
use jr2_harness::turn::step::{Effect as Wants, Input as Hears};
use jr2_orchestrator::run::core::{self, Delivery, Input, Reply};
use jr2_shared::surface::Surface;
use serde_json::json;

impl World {
    fn surface(&self, iid: &str) -> Option<Surface> {
        core::surface(&self.program, &self.row, iid).map(|(surface, _)| surface)
    }

    pub(super) fn go_on(&mut self, name: &str, iid: &str, choice: Choice) {
        let lost = matches!(choice, Choice::AnswerLost | Choice::GivenUp);
        if lost {
            self.spend();
            self.left.wire -= 1;
        }
        let running = self.pods.get(name).and_then(|p| p.conversations.get(iid)).and_then(|c| c.running.clone());
        let Some(running) = running else { return };
        let hears = match &running.effect {
            Wants::Record { .. } => {
                let Some(conversation) = self.pods.get_mut(name).and_then(|p| p.conversations.get_mut(iid)) else {
                    return;
                };
                let submission = running.state.frame.submission.clone();
                let agent = conversation.agent.clone();
                let written = conversation.write();
                if written.iter().any(|e| matches!(e, Entry::Prompted { .. })) {
                    let carried = conversation.carried_by(&submission);
                    let prompts = conversation.record.iter().flatten().filter(|e| matches!(e, Entry::Prompted { .. }));
                    let first = prompts.count() == 1;
                    self.ghost.prompted(name, iid, carried.unwrap_or_default(), first);
                    if let Some(answer) = &running.state.frame.receipt {
                        self.ghost.receipt_said(name, &answer.delivery_id);
                    }
                }
                // Told only now: the answer with the verdict stands (spec M-10).
                if let (Wants::Record { told: Some(kill), .. }, Some(pod)) = (&running.effect, self.pods.get_mut(name))
                {
                    pod.told(kill, &agent, iid);
                    self.ghost.told(name, kill, iid);
                }
                return;
            }
            Wants::ReadSurface => {
                self.apply(&Input::SurfaceRead { iid: iid.to_owned() });
                let read = match self.surface(iid).map(Menu::of) {
                    Some(Ok(menu)) => SurfaceRead::Found(menu, None),
                    Some(Err(words)) => SurfaceRead::Failed(words),
                    None => SurfaceRead::Gone,
                };
                Hears::Surface(read)
            }
            Wants::AskModel => Hears::Model(Ok(self.answer(choice, &running.state.menu))),
            Wants::RunTool { .. } => {
                let kill = running.verdict.clone();
                Hears::Tool(ToolOutcome { text: "done".to_owned(), is_error: kill.is_some(), kill })
            }
            Wants::PostPick { pick_id, event, .. } => {
                let input = Input::Pick {
                    iid: iid.to_owned(),
                    pick: Some(pick_id.clone()),
                    event: event.clone(),
                    payload: json!({}),
                };
                let outcome = outcome(self.apply(&input));
                if choice == Choice::GivenUp {
                    self.ghost.given_up(pick_id);
                    Hears::Pick(PickOutcome::Refused(PickRefusal::Transport { detail: "no answer".to_owned() }))
                } else {
                    Hears::Pick(outcome)
                }
            }
            Wants::AwaitPick { delivery } => Hears::Pick(match core::delivery(&self.row, iid, delivery) {
                Delivery::Answered(answer) => PickOutcome::Answered(answer),
                Delivery::Outstanding => PickOutcome::Stopped,
                Delivery::Unknown | Delivery::Gone => PickOutcome::Refused(PickRefusal::Gone),
            }),
            Wants::Reread { .. } => {
                Hears::Reread(if self.surface(iid).is_some() { Reread::Unchanged } else { Reread::Gone })
            }
            Wants::Finish => return,
        };
        if choice == Choice::AnswerLost {
            return; // it is sent again
        }
        if let Hears::Pick(PickOutcome::Answered(answer)) = &hears
            && answer.answered
        {
            self.ghost.call_answered(&answer.delivery_id); // its result is written with the next step
        }
        let Some(conversation) = self.pods.get_mut(name).and_then(|p| p.conversations.get_mut(iid)) else { return };
        if let Some(running) = &mut conversation.running {
            running.verdict = None;
        }
        conversation.feed(hears);
    }

    fn answer(&mut self, choice: Choice, menu: &Menu) -> ModelAnswer {
        let call =
            |name: &str, id: &str| ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: "{}".to_owned() };
        let (text, tool_calls) = match choice {
            Choice::Pick | Choice::Ask => {
                self.left.asks -= u8::from(choice == Choice::Ask);
                let tool = format!("mcp__jr2__{}", allowed(menu, choice == Choice::Ask).unwrap_or_default());
                (String::new(), vec![call(&tool, "p")])
            }
            Choice::Bash => {
                self.left.tools -= 1;
                (String::new(), vec![call("bash", "t")])
            }
            _ => {
                self.left.silences = self.left.silences.saturating_sub(1);
                ("I stop.".to_owned(), Vec::new())
            }
        };
        ModelAnswer { text, reasoning: None, tool_calls, finish: Finish::Stop, usage: None }
    }
}

fn outcome(reply: Reply) -> PickOutcome {
    match reply {
        Reply::Pick(answer) => PickOutcome::Answered(Box::new(answer)),
        Reply::Refused { error, allowed, status: 400 } => PickOutcome::Refused(PickRefusal::Invalid { error, allowed }),
        _ => PickOutcome::Refused(PickRefusal::Gone),
    }
}
