use super::*;
use crate::menu::Pick;
use crate::model::{ToolCall, Usage};
use jr2_shared::harness::{DONE_TEXT_MAX_BYTES, Settlement};
use jr2_shared::surface::PickAnswer;
use serde_json::json;
use std::collections::BTreeSet;

mod promises;

fn frame() -> Frame {
    Frame {
        iid: "r/root/coder".into(),
        submission: "s-1-abcdef".into(),
        prompt: "Do it.".into(),
        cwd: Some("/w".into()),
        receipt: None,
        notices: vec![],
        shm_private: false,
        working_tools: vec!["read".into(), "bash".into()],
    }
}

fn menu(allowed: &[&str]) -> Menu {
    let pick = |event: &str, briefing: Option<&str>| Pick {
        event: event.into(),
        tool: format!("mcp__jr2__{event}"),
        description: None,
        input: json!({"type": "object"}),
        briefing: briefing.map(str::to_owned),
    };
    Menu {
        picks: vec![pick("done", None), pick("more", Some("Only when asked."))],
        allowed: allowed.iter().map(|name| (*name).to_owned()).collect(),
        keyed: true,
    }
}

fn found(allowed: &[&str]) -> Input {
    Input::Surface(SurfaceRead::Found(menu(allowed), Some("\"1\"".into())))
}

fn no_menu() -> Input {
    Input::Surface(SurfaceRead::Found(Menu::default(), None))
}

fn says(text: &str) -> Input {
    Input::Model(Ok(ModelAnswer {
        text: text.into(),
        finish: Finish::Stop,
        usage: Some(Usage::default()),
        ..ModelAnswer::empty()
    }))
}

fn calls(list: &[(&str, &str, &str)]) -> Input {
    let tool_calls = list
        .iter()
        .map(|(id, name, arguments)| ToolCall {
            id: (*id).into(),
            name: (*name).into(),
            arguments: (*arguments).into(),
        })
        .collect();
    Input::Model(Ok(ModelAnswer { text: "So.".into(), tool_calls, finish: Finish::ToolCalls, ..ModelAnswer::empty() }))
}

fn ran(text: &str) -> Input {
    Input::Tool(ToolOutcome { text: text.into(), is_error: false, kill: None })
}

fn answer(moved: bool, over: bool, allowed: Option<&[&str]>) -> PickAnswer {
    PickAnswer {
        delivered: true,
        event: "done".into(),
        moved,
        turn_complete: over,
        delivery_id: "d1".into(),
        allowed: allowed.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        outstanding: false,
        reply: None,
        nothing_ran: false,
        answered: false,
    }
}

fn took(moved: bool, over: bool, allowed: Option<&[&str]>) -> Input {
    Input::Pick(PickOutcome::Answered(Box::new(answer(moved, over, allowed))))
}

fn outstanding() -> Input {
    Input::Pick(PickOutcome::Answered(Box::new(PickAnswer { outstanding: true, ..answer(true, false, None) })))
}

fn changed(allowed: &[&str]) -> Input {
    Input::Reread(Reread::Changed(menu(allowed), Some("\"2\"".into())))
}

fn name(input: &Input) -> &'static str {
    match input {
        Input::Start => "start",
        Input::Surface(SurfaceRead::Found(..)) => "surface",
        Input::Surface(_) => "no surface",
        Input::Recorded => "recorded",
        Input::Model(Ok(answer)) if !answer.tool_calls.is_empty() => "calls",
        Input::Model(Ok(answer)) if answer.text.is_empty() => "empty",
        Input::Model(Ok(_)) => "text",
        Input::Model(Err(_)) => "model error",
        Input::Tool(_) => "tool",
        Input::Pick(PickOutcome::Answered(answer)) if answer.outstanding => "outstanding",
        Input::Pick(_) => "pick",
        Input::Reread(Reread::Gone) => "gone",
        Input::Reread(Reread::Changed(..)) => "changed",
        Input::Reread(_) => "unchanged",
        Input::Stop(_) => "stop",
    }
}

type Transition = (Phase, &'static str, Phase);

/// A run of the machine over given inputs.
struct Played {
    state: State,
    effects: Vec<Effect>,
    transitions: Vec<Transition>,
}

/// Feeds inputs; `Recorded` follows every record by itself.
fn play(inputs: Vec<Input>) -> Played {
    let mut played = Played { state: State::new(frame()), effects: vec![], transitions: vec![] };
    for input in std::iter::once(Input::Start).chain(inputs) {
        played.feed(input);
        while matches!(
            played.state.phase,
            Phase::Prompting | Phase::Noting | Phase::Result | Phase::Telling | Phase::Settling
        ) {
            played.feed(Input::Recorded);
        }
    }
    played
}

impl Played {
    fn feed(&mut self, input: Input) {
        let (from, name) = (self.state.phase, name(&input));
        let effects = step(&mut self.state, input);
        assert!(effects.len() <= 1, "one effect at a time");
        self.effects.extend(effects);
        self.transitions.push((from, name, self.state.phase));
    }

    fn entries(&self) -> Vec<Entry> {
        let recorded = self.effects.iter().filter_map(|effect| match effect {
            Effect::Record { entries, .. } => Some(entries.clone()),
            _ => None,
        });
        recorded.flatten().collect()
    }

    fn messages(&self) -> Vec<ChatMessage> {
        let message = |entry| if let Entry::Message { message, .. } = entry { Some(message) } else { None };
        self.entries().into_iter().filter_map(message).collect()
    }

    fn results(&self) -> Vec<String> {
        let result = |message| if let ChatMessage::Tool { content, .. } = message { Some(content) } else { None };
        self.messages().into_iter().filter_map(result).collect()
    }

    fn settlement(&self) -> Settlement {
        let settled: Vec<Settlement> = self
            .entries()
            .into_iter()
            .filter_map(|entry| if let Entry::Settled { settlement } = entry { Some(settlement) } else { None })
            .collect();
        assert_eq!(settled.len(), 1, "settled once");
        assert_eq!(self.state.phase, Phase::Finished);
        settled.into_iter().next().unwrap()
    }

    fn failure(&self) -> (Outcome, String, String) {
        let settlement = self.settlement();
        let error = settlement.error.unwrap();
        (settlement.outcome, error.kind, error.message)
    }

    fn asked(&self) -> usize {
        self.effects.iter().filter(|effect| **effect == Effect::AskModel).count()
    }
}

/// Every story a Submission may tell, one line each.
fn stories() -> Vec<Vec<Input>> {
    let bash = || calls(&[("c", "bash", "{}")]);
    let done = || calls(&[("c", "mcp__jr2__done", "{}")]);
    let stop = || Input::Stop(Stop::Abort);
    let gone = || Input::Surface(SurfaceRead::Gone);
    let model_error = || Input::Model(Err(ModelError::Idle { limit: std::time::Duration::from_mins(5), asked: 2 }));
    vec![
        vec![gone()],
        vec![stop(), Input::Surface(SurfaceRead::Stopped)],
        vec![found(&["done"]), says("Done.")],
        vec![found(&[]), says("")],
        vec![found(&["done"]), says(""), says("Done.")],
        vec![found(&["done"]), model_error()],
        vec![found(&["done"]), stop(), says("Half a")],
        vec![found(&["done"]), stop(), says("")],
        vec![found(&["done"]), stop(), calls(&[("c", "bash", "{}")])],
        vec![found(&["done"]), bash(), ran("ok"), Input::Reread(Reread::Unchanged), says("Done.")],
        vec![found(&["done"]), bash(), stop(), ran("killed")],
        vec![found(&["done"]), bash(), ran("ok"), Input::Reread(Reread::Gone)],
        vec![found(&["done"]), bash(), ran("ok"), stop(), Input::Reread(Reread::Unchanged)],
        vec![found(&["done"]), bash(), ran("ok"), stop(), changed(&["more"])],
        vec![found(&["done"]), bash(), ran("ok"), changed(&["more"]), says("Done.")],
        vec![found(&["done"]), bash(), ran("ok"), changed(&["done"]), says("Done.")],
        vec![found(&["done"]), calls(&[("c", "nope", "{}")]), Input::Reread(Reread::Unknown), says("Done.")],
        vec![found(&["done"]), done(), took(true, true, Some(&[]))],
        vec![found(&["done"]), done(), took(true, false, Some(&["more"])), changed(&["more"]), says("Done.")],
        vec![found(&["done"]), done(), outstanding(), took(true, true, Some(&[]))],
        vec![found(&["done"]), done(), outstanding(), stop(), Input::Pick(PickOutcome::Stopped)],
        vec![found(&["done"]), done(), stop(), Input::Pick(PickOutcome::Stopped)],
    ]
}

#[test]
fn every_transition_of_the_table_is_taken_and_no_other() {
    use Phase::*;
    let table: BTreeSet<Transition> = [
        (New, "start", Surface),
        (Surface, "surface", Prompting),
        (Surface, "no surface", Settling),
        (Surface, "stop", Surface),
        (Prompting, "recorded", Asking),
        (Asking, "text", Settling),
        (Asking, "empty", Telling),
        (Asking, "empty", Settling),
        (Asking, "model error", Settling),
        (Asking, "calls", Noting),
        (Asking, "calls", Settling),
        (Asking, "stop", Asking),
        (Noting, "recorded", Tool),
        (Noting, "recorded", Posting),
        (Noting, "recorded", Result),
        (Tool, "tool", Result),
        (Tool, "stop", Tool),
        (Posting, "pick", Result),
        (Posting, "outstanding", Awaiting),
        (Posting, "stop", Posting),
        (Awaiting, "pick", Result),
        (Awaiting, "stop", Awaiting),
        (Result, "recorded", Rereading),
        (Result, "recorded", Settling),
        (Rereading, "unchanged", Asking),
        (Rereading, "unchanged", Settling),
        (Rereading, "changed", Telling),
        (Rereading, "changed", Asking),
        (Rereading, "changed", Settling),
        (Rereading, "gone", Settling),
        (Rereading, "stop", Rereading),
        (Telling, "recorded", Asking),
        (Settling, "recorded", Finished),
    ]
    .into();
    let taken: BTreeSet<Transition> = stories().into_iter().flat_map(|story| play(story).transitions).collect();
    assert_eq!(taken.difference(&table).collect::<Vec<_>>(), Vec::<&Transition>::new(), "taken, not in the table");
    assert_eq!(table.difference(&taken).collect::<Vec<_>>(), Vec::<&Transition>::new(), "in the table, never taken");
}

#[test]
fn decision_32_the_prompted_record_stands_before_the_model_is_asked() {
    let mut state = State::new(frame());
    step(&mut state, Input::Start);
    let effects = step(&mut state, found(&["done"]));
    let [Effect::Record { entries, sync: true, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(matches!(entries.as_slice(), [Entry::Message { .. }, Entry::Prompted { .. }]));
    assert_eq!(step(&mut state, Input::Recorded), [Effect::AskModel]);
}

#[test]
fn decision_32_a_call_with_an_effect_is_durable_before_it_runs() {
    for (tool, durable) in [("bash", true), ("mcp__jr2__done", true), ("read", false), ("nope", false)] {
        let played = play(vec![found(&["done"]), calls(&[("c", tool, "{}")])]);
        let noted = played.effects.iter().find_map(|effect| match effect {
            Effect::Record { entries, sync, .. }
                if matches!(entries[0], Entry::Message { message: ChatMessage::Assistant { .. }, .. }) =>
            {
                Some(*sync)
            }
            _ => None,
        });
        assert_eq!(noted, Some(durable), "{tool}");
    }
}

#[test]
fn m_10_told_comes_with_the_durable_record_of_the_verdict_and_with_no_other() {
    let killed = Input::Tool(ToolOutcome { text: "killed".into(), is_error: true, kill: Some("k1".into()) });
    let again = || calls(&[("c", "bash", "{\"n\":2}")]);
    let same = Input::Reread(Reread::Unchanged);
    let played = play(vec![found(&[]), calls(&[("c", "bash", "{}")]), killed, same, again(), ran("ok")]);
    let told: Vec<_> = played
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Record { entries, sync, told: Some(kill) } => Some((entries.len(), *sync, kill.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(1, true, "k1")]);
}

#[test]
fn p_14_a_gone_surface_writes_nothing_and_asks_nothing() {
    let played = play(vec![Input::Surface(SurfaceRead::Gone)]);
    assert_eq!(played.failure(), (Outcome::Aborted, "submission_aborted".into(), OVER_BEFORE_START.into()));
    assert_eq!((played.messages().len(), played.asked()), (0, 0));
}

#[test]
fn the_last_text_is_what_a_completed_settlement_carries() {
    let played = play(vec![found(&["done"]), calls(&[("c", "mcp__jr2__done", "{}")]), took(true, true, Some(&[]))]);
    assert_eq!(played.settlement().text.as_deref(), Some("So."));
    let long = "ä".repeat(DONE_TEXT_MAX_BYTES);
    let text = play(vec![found(&[]), says(&long)]).settlement().text.unwrap();
    assert_eq!(text.len(), DONE_TEXT_MAX_BYTES);
    assert_eq!(play(vec![found(&[]), says("")]).settlement().text, None);
}

#[test]
fn a_pick_that_ends_the_turn_closes_the_calls_behind_it() {
    let list = [("a", "mcp__jr2__done", "{}"), ("b", "bash", "{}")];
    let played = play(vec![found(&["done"]), calls(&list), took(true, true, Some(&[]))]);
    assert_eq!(played.results()[1], briefing::CALL_NOT_RUN_OVER);
    assert_eq!(played.settlement().outcome, Outcome::Completed);
    assert_eq!(played.asked(), 1);
}

#[test]
fn h_28_the_fourth_identical_call_trips_and_never_runs() {
    let call = || calls(&[("c", "bash", r#"{"command":"x", "a":1}"#)]);
    let reordered = || calls(&[("c", "bash", r#"{"a": 1, "command": "x"}"#)]);
    let same = || Input::Reread(Reread::Unchanged);
    let played = play(vec![
        found(&[]),
        call(),
        ran("1"),
        same(),
        reordered(),
        ran("2"),
        same(),
        call(),
        ran("3"),
        same(),
        call(),
    ]);
    assert_eq!(played.failure(), (Outcome::Failed, "runaway".into(), "repeated an identical tool call 4 times".into()));
    let run = played.effects.iter().filter(|effect| matches!(effect, Effect::RunTool { .. })).count();
    assert_eq!(run, 3);
    assert_eq!(played.results().last().unwrap(), briefing::CALL_NOT_RUN_RUNAWAY);
}

#[test]
fn h_28_another_call_in_between_starts_the_count_anew() {
    let mut inputs = vec![found(&[])];
    for n in 0..9 {
        inputs.push(calls(&[("c", "bash", if n % 3 == 2 { "{}" } else { r#"{"a":1}"# })]));
        inputs.push(ran("ok"));
        inputs.push(Input::Reread(Reread::Unchanged));
    }
    inputs.push(says("Done."));
    assert_eq!(play(inputs).settlement().outcome, Outcome::Completed);
}

#[test]
fn h_29_more_than_256_steps_are_a_runaway() {
    let mut inputs = vec![found(&[])];
    for n in 0..STEPS_MAX {
        inputs.push(calls(&[("c", "bash", &format!("{{\"n\":{n}}}"))]));
        inputs.push(ran("ok"));
        inputs.push(Input::Reread(Reread::Unchanged));
    }
    let played = play(inputs);
    assert_eq!(played.failure(), (Outcome::Failed, "runaway".into(), "exceeded 256 steps".into()));
    assert_eq!(played.asked(), STEPS_MAX as usize);
}

#[test]
fn decision_34_ids_a_server_repeats_never_make_two_picks_one() {
    let done = || calls(&[("call_0", "mcp__jr2__done", "{}")]);
    let more = took(false, false, Some(&["done"]));
    let played = play(vec![found(&["done"]), done(), more, Input::Reread(Reread::Unchanged), done()]);
    let ids: Vec<&String> = played
        .effects
        .iter()
        .filter_map(|effect| if let Effect::PostPick { pick_id, .. } = effect { Some(pick_id) } else { None })
        .collect();
    assert_eq!(ids, ["s-1-abcdef/call_0", "s-1-abcdef/call_0-2-0"]);
}

#[test]
fn bt_8_a_change_by_another_party_is_restated_once_and_own_picks_are_not() {
    let bash = || calls(&[("c", "bash", "{}")]);
    let told = |played: &Played| -> Vec<String> {
        let user = |message| if let ChatMessage::User(text) = message { Some(text) } else { None };
        played.messages().into_iter().filter_map(user).skip(1).collect()
    };
    let played = play(vec![
        found(&["done"]),
        bash(),
        ran("ok"),
        changed(&["done", "more"]),
        bash(),
        ran("ok"),
        Input::Reread(Reread::Unchanged),
        says("Done."),
    ]);
    assert_eq!(
        told(&played),
        [
            "<jr2-turn>\nOnly when asked.\nThe workflow's state changed since you last read the Allowed picks. Allowed now: \
          `mcp__jr2__done`, `mcp__jr2__more`.\n</jr2-turn>"
        ]
    );
    let played = play(vec![
        found(&["done"]),
        calls(&[("c", "mcp__jr2__done", "{}")]),
        took(true, false, Some(&["more"])),
        changed(&["more"]),
        says("Done."),
    ]);
    assert!(told(&played).is_empty(), "its own pick, said by the receipt");
    let closed = play(vec![found(&["done", "more"]), bash(), ran("ok"), changed(&["more"]), says("Done.")]);
    assert!(!told(&closed)[0].contains("Only when asked."), "a pick that was open already is not opened by it");
}

#[test]
fn decision_21_an_unknown_reread_says_nothing_and_a_404_ends_the_turn() {
    let bash = || calls(&[("c", "bash", "{}")]);
    let played = play(vec![found(&["done"]), bash(), ran("ok"), Input::Reread(Reread::Unknown), says("Done.")]);
    assert_eq!(played.settlement().outcome, Outcome::Completed);
    let played = play(vec![found(&["done"]), bash(), ran("ok"), Input::Reread(Reread::Gone)]);
    assert_eq!(played.failure(), (Outcome::Aborted, "submission_aborted".into(), OVER_MEANWHILE.into()));
    assert_eq!(played.asked(), 1);
}

#[test]
fn empty_answers_are_asked_about_once_and_are_a_stop_only_when_nothing_is_allowed() {
    let twice = play(vec![found(&["done"]), says(""), says("")]);
    assert_eq!((twice.settlement().outcome, twice.asked()), (Outcome::Completed, 2));
    assert_eq!(play(vec![found(&[]), says("")]).asked(), 1);
    let menuless = play(vec![no_menu(), says(""), says("")]);
    assert_eq!(menuless.failure().0, Outcome::Failed, "an Agent without a Menu has nobody to nudge it");
}

#[test]
fn h_21_an_abort_keeps_what_the_model_had_said() {
    let partial = Box::new(ModelAnswer { text: "Half a".into(), ..ModelAnswer::empty() });
    let played = play(vec![found(&[]), Input::Stop(Stop::Abort), Input::Model(Err(ModelError::Aborted { partial }))]);
    assert_eq!(played.failure().0, Outcome::Aborted);
    assert!(
        matches!(&played.messages()[1], ChatMessage::Assistant { text, tool_calls, .. } if text == "Half a" && tool_calls.is_empty())
    );
}

#[test]
fn h_17_a_drain_settles_as_a_restart_and_says_whether_it_was_prompted() {
    let early = play(vec![Input::Stop(Stop::Drain), Input::Surface(SurfaceRead::Stopped)]).settlement();
    assert_eq!((early.error.unwrap().kind.as_str(), early.prompted), ("harness_restarted", Some(false)));
    let partial = Box::new(ModelAnswer::empty());
    let late = play(vec![found(&[]), Input::Stop(Stop::Drain), Input::Model(Err(ModelError::Aborted { partial }))]);
    assert_eq!(late.settlement().prompted, Some(true));
}

#[test]
fn h_22_a_provider_limit_is_said_first() {
    let played = play(vec![found(&[]), Input::Model(Err(ModelError::Limit { message: "429 slow down".into() }))]);
    assert_eq!(played.failure().2, "provider limit: 429 slow down");
}
