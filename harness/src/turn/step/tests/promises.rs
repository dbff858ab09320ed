//! What the loop promises whatever happens to it.

use super::*;
use proptest::prelude::*;

/// An input the phase waits for, chosen by a byte.
fn some_input(state: &State, byte: u8) -> Input {
    let stopping = state.stop.is_some();
    match state.phase {
        Phase::New => Input::Start,
        Phase::Surface if stopping => Input::Surface(SurfaceRead::Stopped),
        Phase::Surface => match byte % 8 {
            0 => Input::Surface(SurfaceRead::Gone),
            1 => Input::Surface(SurfaceRead::Failed("no".into())),
            2 => no_menu(),
            3 => found(&[]),
            _ => found(&["done"]),
        },
        Phase::Asking => match byte % 12 {
            0 => says("Done."),
            1 => says(""),
            2 => Input::Model(Err(ModelError::Transport { message: "cut".into() })),
            3 => calls(&[("", "bash", "{")]),
            4 => calls(&[("c", "nope", "{}"), ("c", "bash", &format!("{{\"n\":{byte}}}")), ("c", "read", "{}")]),
            5 | 6 => calls(&[("c", "mcp__jr2__done", "{}"), ("d", "mcp__jr2__more", "{}")]),
            _ => calls(&[("c", "bash", &format!("{{\"n\":{}}}", byte / 64))]),
        },
        Phase::Tool => ran("ok"),
        Phase::Posting | Phase::Awaiting if stopping => Input::Pick(PickOutcome::Stopped),
        Phase::Posting | Phase::Awaiting => match byte % 6 {
            0 => took(true, true, Some(&[])),
            1 if state.phase == Phase::Posting => outstanding(),
            2 => Input::Pick(PickOutcome::Refused(PickRefusal::Gone)),
            _ => took(true, false, Some(&["more"])),
        },
        Phase::Rereading => match byte % 8 {
            0 => Input::Reread(Reread::Gone),
            1 => Input::Reread(Reread::Unknown),
            2 => changed(&["done"]),
            _ => Input::Reread(Reread::Unchanged),
        },
        _ => Input::Recorded,
    }
}

proptest! {
    /// Whatever the model, the surface and the Orchestrator do: one settlement, nothing after it, the model is asked only
    /// after the prompted record, every call that was kept has exactly one result, nothing runs after a stop.
    #[test]
    fn the_loop_keeps_its_promises(bytes in prop::collection::vec(any::<u8>(), 400), stop_at in 0usize..120) {
        let mut played = Played { state: State::new(frame()), effects: vec![], transitions: vec![] };
        let mut stopped_after = usize::MAX;
        for (n, byte) in bytes.iter().enumerate() {
            if played.state.phase == Phase::Finished { break; }
            // The last bytes press for an end.
            if n == stop_at || n == 300 {
                played.feed(Input::Stop(if byte % 2 == 0 { Stop::Abort } else { Stop::Drain }));
                stopped_after = stopped_after.min(played.effects.len());
            }
            let input = some_input(&played.state, *byte);
            played.feed(input);
        }
        played.settlement();
        prop_assert_eq!(played.effects.last(), Some(&Effect::Finish));
        let mut prompted = false;
        let mut open: Vec<String> = vec![];
        for (n, effect) in played.effects.iter().enumerate() {
            match effect {
                Effect::Record { entries, .. } => for entry in entries { match entry {
                    Entry::Prompted { .. } => prompted = true,
                    Entry::Message { message: ChatMessage::Assistant { tool_calls, .. }, .. } => {
                        prop_assert!(open.is_empty(), "an answer while calls are open");
                        open = tool_calls.iter().map(|call| call.id.clone()).collect();
                        for call in tool_calls {
                            prop_assert!(serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok());
                        }
                    }
                    Entry::Message { message: ChatMessage::Tool { call_id, .. }, .. } => {
                        prop_assert_eq!(open.iter().filter(|id| *id == call_id).count(), 1);
                        open.retain(|id| id != call_id);
                    }
                    _ => {}
                } },
                Effect::AskModel => { prop_assert!(prompted && open.is_empty()); prop_assert!(n <= stopped_after); }
                Effect::RunTool { .. } | Effect::PostPick { .. } => {
                    prop_assert!(n <= stopped_after, "something started after the stop");
                }
                _ => {}
            }
        }
        prop_assert!(open.is_empty(), "a call without a result");
        let repeated = played.transitions.len();
        prop_assert!(step(&mut played.state, Input::Recorded).is_empty(), "{repeated} steps and still alive");
    }
}
