//! Picks that ask, over `apply` alone. Every input is applied to a row that was written to JSON and read back.

use super::super::{Effect, Facts, Input, Outcome, Reply, apply, delivery, reattach};
use super::*;
use crate::run::core::{Delivery, DoResult};
use crate::run::{Row, Status};
use crate::turn::Phase;
use crate::workflow::{Bindings, Catalog, Program};
use jr2_shared::harness::{AdmitAnswer, Outcome as Ended, Settlement, SettlementError};
use std::collections::BTreeMap;
use std::sync::Arc;

mod cuts;
mod properties;
mod returns;

/// A lead whose desk asks, beside a region that has nothing to do with it.
const ASKING: &str = "
workflow: asking
agents:
  lead: { model: a/b, instructions: Lead., workspace: none }
  reviewer: { model: a/b, instructions: Review., workspace: none }
  writer: { model: a/b, instructions: Write., workspace: none }
events:
  ask: { from: lead }
  chain: { from: lead }
  build: { from: lead }
  consult: { from: lead }
  draft: { from: lead }
  compute: { from: lead }
  request: { from: lead }
  skim: { from: lead }
  convene: { from: lead }
  count: { from: lead }
  spoil: { from: lead }
  note: { from: lead }
  both: { from: lead }
  finish: { from: lead }
  verdict: { from: reviewer, payload: { type: object, properties: { ok: { type: boolean } } } }
  doubt: { from: reviewer }
  approve: { from: external, payload: { type: object, properties: { note: { type: string } } } }
  reject: { from: external, payload: { type: object, properties: { why: { type: string } } } }
  settle: { from: external }
  skip: { from: external }
  poke: { from: external }
  hush: { from: external }
  storm: { from: external }
  abort: { from: external }
  resume: { from: external }
context: { notes: 0 }
initial: working
states:
  working:
    agent: lead
    continue: true
    prompt: Work.
    initial: room
    states:
      room:
        parallel: true
        states:
          desk:
            initial: idle
            states:
              idle:
                on:
                  ask: review
                  chain: first
                  build: building
                  consult: reviewing
                  draft: drafting
                  compute: computing
                  request: requesting
                  skim: passing
                  convene: panel
                  count: counting
                  spoil: spoilt
                  note: { set: { notes: context.notes + 1 } }
              review:
                gate: { question: good? }
                on: { approve: idle, reject: outside }
                after: { 1h: outside }
              first:
                gate: { question: one? }
                on: { approve: { to: second, raise: poke } }
              second:
                gate: { question: two? }
                on: { approve: idle, reject: outside }
              building:
                run: child
                on: { done.run: idle, error.run: outside }
              reviewing:
                agent: reviewer
                prompt: Review.
                on: { verdict: idle, agent.fault: outside }
                initial: reading
                states:
                  reading: { on: { doubt: doubting } }
                  doubting:
                    gate: { question: sure? }
                    on: { approve: reading, reject: reading }
              drafting:
                agent: writer
                prompt: Write.
                on: { agent.done: idle, agent.fault: idle }
              computing:
                do: {}
                on: { done.do: idle, error.do: outside }
              requesting:
                do: { http: { method: GET, url: 'http://127.0.0.1:1/' } }
                retry: { max: 1, backoff: 10s..10s }
                on: { done.do: outside, error.do: idle }
              passing: { always: idle }
              spoilt:
                gate: { share: '{{ 1 / context.notes }}' }
                on: { approve: idle, error.expression: idle }
              panel:
                initial: seat
                states: { seat: { gate: {}, on: { approve: idle } } }
                after: { 30m: outside }
              counting:
                run: child
                on: { done.run: { set: { notes: context.notes + 1 } }, error.run: idle }
                after: { 30m: idle }
            on: { skip: room.desk.second }
          side:
            initial: quiet
            states:
              quiet: { on: { poke: open } }
              open:
                gate: { question: aside? }
                on: { hush: quiet, storm: outside }
          many:
            initial: one
            states:
              one: { on: { both: two } }
              two:
                parallel: true
                states:
                  left: { initial: l, states: { l: { gate: {}, on: { approve: m } }, m: { final: true } } }
                  right: { initial: r, states: { r: { gate: {}, on: { approve: s } }, s: { final: true } } }
                on: { done.state.working.room.many.two: one }
    on: { finish: done, abort: outside, agent.fault: outside }
    after: { 2h: outside }
  outside:
    gate: { question: go on? }
    on: { resume: working, settle: done }
  done: { final: true, output: { ok: yes } }
";
const CHILD: &str = "
workflow: child
events: { go: { from: external } }
initial: wait
states:
  wait: { gate: {}, on: { go: end } }
  end: { final: true, output: { built: yes } }
";

/// A run that is driven.
struct Drive {
    program: Arc<Program>,
    row: Row,
    last: Outcome,
    now: u64,
    picks: u32,
}

fn program(texts: &[(&str, &str)]) -> Arc<Program> {
    let all: BTreeMap<String, Arc<str>> = texts.iter().map(|(n, t)| ((*n).to_owned(), Arc::from(*t))).collect();
    let catalog = Catalog::from_texts(&all).unwrap_or_else(|e| panic!("{}", e.plain()));
    Arc::new(Program::build(&catalog, texts[0].0, &Bindings::default()).unwrap_or_else(|e| panic!("{}", e.plain())))
}

fn asking() -> Drive {
    Drive::new(ASKING)
}

fn fresh() -> Drive {
    Drive::new(&ASKING.replace("continue: true", "continue: false"))
}

impl Drive {
    fn new(text: &str) -> Self {
        Self::of(program(&[("asking", text), ("child", CHILD)]))
    }

    fn of(program: Arc<Program>) -> Self {
        let row = crate::run::birth::new_row(&program, "asking", json!({}), 1_000);
        let last = apply(&program, &row, &Input::Start, Facts { now: 1_000, seed: 7 });
        let mut drive = Self { program, row: last.row.clone(), last, now: 1_000, picks: 0 };
        drive.admitted("lead");
        drive
    }

    /// Applies an input and what follows from it.
    fn apply(&mut self, input: Input) -> Reply {
        let reply = self.once(&input);
        let (mut effects, mut feed) = (self.last.effects.clone(), self.last.feed.clone());
        while let Some(next) = self.row.queue.front().cloned() {
            self.once(&next);
            effects.extend(self.last.effects.clone());
            feed.extend(self.last.feed.clone());
        }
        (self.last.effects, self.last.feed) = (effects, feed);
        reply
    }

    /// Applies one input to the row as the store gives it back.
    fn once(&mut self, input: &Input) -> Reply {
        let kept = serde_json::to_string(&self.row).unwrap();
        let row: Row = serde_json::from_str(&kept).unwrap();
        assert_eq!(serde_json::to_string(&row).unwrap(), kept);
        self.last = apply(&self.program, &row, input, Facts { now: self.now, seed: 7 });
        self.row = self.last.row.clone();
        self.last.reply.clone()
    }

    fn invoked(&self, agent: &str) -> Option<&Invoked> {
        fn below<'a>(actor: &'a crate::run::Actor, agent: &str) -> Option<&'a Invoked> {
            actor.invoked.values().find_map(|invoked| match &invoked.kind {
                InvokedKind::Agent(turn) if turn.frame.agent == agent && !turn.is_over() => Some(invoked),
                InvokedKind::Run(child) => below(child, agent),
                _ => None,
            })
        }
        below(&self.row.root, agent)
    }

    fn turn(&self, agent: &str) -> &Turn {
        match self.invoked(agent) {
            Some(Invoked { kind: InvokedKind::Agent(turn), .. }) => turn,
            _ => panic!("no Turn of {agent}"),
        }
    }

    fn route(&self) -> Option<&Route> {
        self.invoked("lead").and_then(|i| i.route.as_deref())
    }

    fn turn_input(&mut self, agent: &str, input: TurnInput) {
        let serial = self.invoked(agent).unwrap().serial;
        self.apply(Input::Turn { serial, input });
    }

    /// The Harness takes what this Agent's Turn asks for.
    fn admitted(&mut self, agent: &str) {
        if matches!(self.turn(agent).phase, Phase::Reading { .. }) {
            self.turn_input(agent, TurnInput::Read { kills: Some(Vec::new()), last_end: None });
        }
        let Phase::Admitting { pending } = self.turn(agent).phase.clone() else { panic!("{:?}", self.turn(agent)) };
        let answer = AdmitAnswer {
            stream_url: "http://h/s".into(),
            offset: "0".into(),
            submission_id: format!("s-{}", pending.admission_id),
            carried: None,
        };
        self.turn_input(agent, TurnInput::Admitted { admission_id: pending.admission_id, answer });
    }

    fn settled(&mut self, outcome: Ended, error: Option<&str>) {
        let submission_id = self.turn("lead").admission.clone().unwrap().submission_id;
        let error = error.map(|kind| SettlementError { kind: kind.into(), message: "m".into() });
        let settlement = Settlement { submission_id, outcome, text: None, error, prompted: Some(true) };
        self.turn_input("lead", TurnInput::Settled { settlement, allowed: Vec::new() });
    }

    fn pick_as(&mut self, agent: &str, id: &str, event: &str, payload: Value) -> Reply {
        let iid = self.turn(agent).iid.as_str().to_owned();
        self.apply(Input::Pick { iid, pick: Some(id.to_owned()), event: event.to_owned(), payload })
    }

    /// A new pick of an Agent; its answer.
    fn pick(&mut self, agent: &str, event: &str) -> PickAnswer {
        self.picks += 1;
        let id = format!("pick-{}", self.picks);
        match self.pick_as(agent, &id, event, json!({})) {
            Reply::Pick(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// A pick that asks.
    fn ask(&mut self, event: &str) -> PickAnswer {
        let answer = self.pick("lead", event);
        assert!(answer.outstanding && answer.moved && !answer.turn_complete && !answer.answered, "{answer:?}");
        assert!(self.route().is_some() && self.turn("lead").outstanding.is_some());
        answer
    }

    fn gate(&mut self, gate: &str, event: &str, payload: Value) {
        let reply = self.apply(Input::Gate {
            gate: gate.to_owned(),
            event: event.to_owned(),
            payload,
            activation: None,
            key: None,
        });
        assert!(matches!(&reply, Reply::Http(answer) if answer.status == 200), "{reply:?}");
    }

    fn desk(&mut self, gate: &str, event: &str, payload: Value) {
        self.gate(&format!("working.room.desk.{gate}"), event, payload);
    }

    fn outside(&mut self, event: &str) {
        let reply = self.apply(Input::External { event: event.to_owned(), payload: json!({}), key: None });
        assert!(matches!(&reply, Reply::Http(answer) if answer.status == 200), "{reply:?}");
    }

    fn after_ms(&mut self, ms: u64) {
        self.now += ms;
        self.apply(Input::Tick { hold: false });
    }

    /// The answer kept for a delivery, once its pick is not outstanding any more.
    fn answer(&self, of: &PickAnswer) -> PickAnswer {
        match delivery(&self.row, self.turn("lead").iid.as_str(), &of.delivery_id) {
            Delivery::Answered(answer) => *answer,
            other => panic!("{other:?}"),
        }
    }

    fn is_outstanding(&self, of: &PickAnswer) -> bool {
        delivery(&self.row, self.turn("lead").iid.as_str(), &of.delivery_id) == Delivery::Outstanding
    }

    /// The pick came back with this reply.
    fn came_back(&self, of: &PickAnswer, reply: Option<PickReply>) {
        let answer = self.answer(of);
        let expected = PickAnswer {
            outstanding: false,
            answered: true,
            moved: true,
            turn_complete: false,
            reply,
            allowed: answer.allowed.clone(),
            ..of.clone()
        };
        assert_eq!(answer, expected);
        assert!(self.route().is_none() && self.turn("lead").outstanding.is_none());
        assert!(self.row.ledger.pending.is_empty());
    }

    /// What the conversation would hear later: cut, answer, stopped.
    fn notices(&self) -> Vec<(&str, Option<&PickReply>, Option<bool>)> {
        let base = format!("{}/root/lead", self.row.id);
        let answers = self.row.ledger.pending.iter().filter_map(|pending| match &pending.notice {
            Notice::PickAnswer { cut, answer, stopped, .. } => {
                assert_eq!(conversation(pending), base);
                Some((cut.as_str(), answer.as_ref(), *stopped))
            }
            _ => None,
        });
        answers.collect()
    }
}

/// The conversation that hears a notice.
fn conversation(pending: &crate::turn::Pending) -> &str {
    match &pending.to {
        To::Conversation(base) => base,
        other => panic!("{other:?}"),
    }
}

fn party(party: &str, event: &str, payload: Value) -> PickReply {
    PickReply::Party { party: party.to_owned(), event: event.to_owned(), payload }
}
