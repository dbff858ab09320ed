//! The format's semantics, one behaviour a test.

use super::draft::*;
use super::*;
use crate::expression::ExpressionError;
use serde_json::json;

#[test]
fn descriptors_match_by_tokens() {
    let all = |descriptors: &[&str], name: &str| {
        matches(&descriptors.iter().map(|d| (*d).to_owned()).collect::<Vec<_>>(), name)
    };
    assert!(
        all(&["a"], "a") && all(&["a"], "a.b") && all(&["a.*"], "a") && all(&["a.*"], "a.b") && all(&["a."], "a.b")
    );
    assert!(!all(&["a"], "ab") && !all(&["a.b"], "a") && !all(&["a.*"], "ab"));
    assert!(all(&["x", "*"], "anything") && all(&["x", "a"], "a"));
    assert!(all(&["done.state.a"], "done.state.a") && !all(&["done.state.a"], "done.state.a.b"));
    assert!(all(&["done.state.*"], "done.state.a.b") && all(&["done"], "done.state.a"));
}

#[test]
fn document_order_inner_first_and_guards_that_fail_are_false() {
    let chart = chart(vec![
        state(
            "a",
            vec![
                state("in", vec![]).way(on("e", "b").when("context.missing")).way(on("f", "a.other")),
                state("other", vec![]),
            ],
        )
        .way(on("e", "c").when("context.n < 2.5"))
        .on("e f", "b"),
        state("b", vec![]),
        state("c", vec![]),
    ]);
    let mut drive = Drive::new(chart.clone(), json!({"n": 2}));
    assert_eq!(drive.value(), json!({"a": "in"}));
    assert!(drive.send("e"));
    assert_eq!(drive.value(), json!("c"));
    let mut drive = Drive::new(chart, json!({"n": 3}));
    drive.send("f");
    assert_eq!(drive.value(), json!({"a": "other"}));
    drive.send("e");
    assert_eq!(drive.value(), json!("b"));
    assert!(!drive.send("e"));
    assert_eq!(drive.value(), json!("b"));
}

#[test]
fn internal_by_default_for_descendants_reenter_on_request_and_self() {
    let draft = state(
        "",
        vec![
            state("a", vec![state("x", vec![]), state("y", vec![])])
                .on("inner", "a.y")
                .way(on("outer", "a.y").reenter())
                .on("self", "a")
                .way(on("stay", "").act(emit("'stayed'"))),
        ],
    );
    let mut drive = Drive::new(root(draft.traced("")), json!({}));
    assert_eq!(drive.said(), [json!("+"), json!("+a"), json!("+a.x")]);
    drive.send("inner");
    assert_eq!(drive.said(), [json!("-a.x"), json!("+a.y")]);
    drive.send("outer");
    assert_eq!(drive.said(), [json!("-a.y"), json!("-a"), json!("+a"), json!("+a.y")]);
    drive.send("self");
    assert_eq!(drive.said(), [json!("-a.y"), json!("-a"), json!("+a"), json!("+a.x")]);
    drive.send("stay");
    assert_eq!(drive.said(), [json!("stayed")]);
    assert_eq!(drive.last.taken, [(drive.at("a"), 3)]);
}

#[test]
fn parallel_regions_done_events_and_output() {
    let region = |key: &str| {
        let path = |leaf: &str| format!("p.{key}.{leaf}");
        state(
            key,
            vec![state("run", vec![]).on(&format!("end.{key}"), &path("end")), done_with("end", "{'by': event.type}")],
        )
    };
    let chart = chart(vec![
        parallel("p", vec![region("l"), region("r")])
            .way(on("done.state.p.l", "").act(set(&[("left", "event.by")])))
            .on("done.state.p", "ok"),
        done_with("ok", "{'left': context.left, 'n': 1 + 1}"),
    ]);
    let mut drive = Drive::new(chart, json!({"left": ""}));
    assert_eq!(drive.value(), json!({"p": {"l": "run", "r": "run"}}));
    assert_eq!(accepts(&drive.chart, &drive.now), ["end.l", "end.r"]);
    drive.send("end.r");
    assert_eq!(drive.value(), json!({"p": {"l": "run", "r": "end"}}));
    assert!(!drive.now.finished);
    drive.send("end.l");
    assert!(drive.now.finished);
    assert_eq!(drive.now.output, Some(json!({"left": "end.l", "n": 2})));
    assert_eq!(drive.value(), json!("ok"));
    assert!(!drive.send("end.l"), "a finished chart takes nothing");
    assert!(accepts(&drive.chart, &drive.now).is_empty());
}

#[test]
fn conflicts_fall_to_the_inner_source_then_to_document_order() {
    let chart = chart(vec![
        parallel(
            "p",
            vec![
                state("l", vec![state("a", vec![]).on("e", "p.l.b").on("out", "x"), state("b", vec![])]),
                state("r", vec![state("a", vec![]).on("out", "y"), state("b", vec![])]),
            ],
        )
        .on("e", "z"),
        state("x", vec![]),
        state("y", vec![]),
        state("z", vec![]),
    ]);
    let mut drive = Drive::new(chart.clone(), json!({}));
    drive.send("e");
    assert_eq!(drive.value(), json!({"p": {"l": "b", "r": "a"}}));
    let mut drive = Drive::new(chart, json!({}));
    drive.send("out");
    assert_eq!(drive.value(), json!("x"));
}

#[test]
fn history_shallow_and_deep() {
    let chart = chart(vec![
        state(
            "work",
            vec![
                state("a", vec![state("one", vec![]).on("next", "work.a.two"), state("two", vec![])]),
                history("shallow", false, "work.a"),
                history("deep", true, "work.a.two"),
            ],
        )
        .on("leave", "away"),
        state("away", vec![]).on("shallow", "work.shallow").on("deep", "work.deep"),
    ]);
    let mut drive = Drive::new(chart, json!({}));
    drive.send("next");
    drive.send("leave");
    drive.send("shallow");
    assert_eq!(drive.value(), json!({"work": {"a": "one"}}));
    drive.send("next");
    drive.send("leave");
    drive.send("deep");
    assert_eq!(drive.value(), json!({"work": {"a": "two"}}));
}

/// The history of a state that stays active: only what was left is entered, whatever stands between.
#[test]
fn a_history_above_the_domain_enters_nothing_twice() {
    let inner = |kind: fn(&str, Vec<Draft>) -> Draft| {
        let leaf =
            kind("in", vec![state("leaf", vec![]).on("back", "work.deep"), history("own", true, "work.in.leaf")]);
        let work = state("work", vec![leaf, history("deep", true, "work.in")]).on("again", "work.in");
        chart(
            vec![state("top", vec![]).on("go", "work"), work.on("leave", "top")]
                .into_iter()
                .map(|s| {
                    let key = s.key().to_owned();
                    s.traced(&key)
                })
                .collect(),
        )
    };
    for kind in [state as fn(&str, Vec<Draft>) -> Draft, parallel] {
        let mut drive = Drive::new(inner(kind), json!({}));
        for event in ["go", "leave", "go"] {
            drive.send(event);
        }
        assert!(drive.send("back"));
        assert_eq!(drive.said(), [json!("-work.in.leaf"), json!("+work.in.leaf")]);
    }
}

#[test]
fn sets_see_the_context_before_and_raised_events_run_in_the_macrostep() {
    let chart = chart(vec![
        state("a", vec![]).way(
            on("go", "b")
                .act(set(&[("x", "context.y"), ("y", "context.x")]))
                .act(raise("inner", Some("{'v': context.x}"))),
        ),
        state("b", vec![]).way(on("inner", "c").act(set(&[("seen", "event.v")]))),
        state("c", vec![]).way(always("d").when("context.seen == 2 && event.type == 'inner'")),
        state("d", vec![]),
    ]);
    let mut drive = Drive::new(chart, json!({"x": 1, "y": 2, "seen": 0}));
    drive.send("go");
    assert_eq!(drive.value(), json!("d"));
    assert_eq!(drive.now.context, *json!({"x": 2, "y": 1, "seen": 2}).as_object().unwrap());
    assert_eq!(drive.last.taken.len(), 3);
}

#[test]
fn timers_and_invocations_follow_entries() {
    let chart = chart(vec![
        state("work", vec![])
            .agent("coder")
            .way(after(500, "late"))
            .on("again", "work")
            .on("leave", "late")
            .on("hop", "hop"),
        state("late", vec![]).on("back", "work").on("hop", "hop"),
        state("hop", vec![]).agent("coder").way(always("late")),
    ]);
    let mut drive = Drive::new(chart, json!({}));
    assert_eq!(drive.did(), ["timer work#1[0] 500", "invoke work#1"]);
    drive.send("again");
    assert_eq!(drive.did(), ["cancel work#1", "uninvoke work#1", "timer work#2[0] 500", "invoke work#2"]);
    drive.send("hop");
    assert_eq!(drive.did(), ["cancel work#2", "uninvoke work#2"], "what is left in the same macrostep never starts");
    drive.send("back");
    assert_eq!(drive.did(), ["timer work#3[0] 500", "invoke work#3"]);
    let timer = EventScope::Timer { state: drive.at("work"), index: 0 };
    assert!(drive.scoped("after", timer.clone()));
    assert_eq!(drive.value(), json!("late"));
    assert!(!drive.scoped("after", timer));
}

#[test]
fn finishing_leaves_everything_in_order() {
    let draft = state(
        "",
        vec![
            parallel(
                "p",
                vec![
                    state("l", vec![]).agent("one").on("end", "end"),
                    state("r", vec![]).invoke(InvokeKind::Gate).way(after(1, "")),
                ],
            ),
            done("end"),
        ],
    );
    let mut drive = Drive::new(root(draft.traced("")), json!({}));
    drive.send("end");
    assert_eq!(drive.said(), ["-p.r", "-p.l", "-p", "+end", "-end", "-"].map(|text| json!(text)));
    assert_eq!(drive.did(), ["cancel p.r#1", "uninvoke p.r#1", "uninvoke p.l#1"]);
}

/// `outer` invokes an Agent; inside it `ask` holds a Gate and `nested` another Agent; beside it another region listens too.
fn nested_agents() -> Drive {
    let chart = chart(vec![
        parallel(
            "p",
            vec![
                state(
                    "outer",
                    vec![
                        state("plain", vec![]).on("pick", "p.outer.ask").on("deeper", "p.outer.nested"),
                        state("ask", vec![]).invoke(InvokeKind::Gate).on("yes", "p.outer.plain"),
                        state(
                            "nested",
                            vec![state("deep", vec![]).on("pick", "p.outer.plain").on("agent.done", "p.outer.plain")],
                        )
                        .agent("inner")
                        .on("own", "p.outer.plain"),
                    ],
                )
                .agent("outer")
                .on("mine", "p.outer.plain"),
                state("side", vec![state("s", vec![]).on("pick yes own", "p.side.t"), state("t", vec![])]),
            ],
        )
        .on("up", "end")
        .on("agent.fault", "end"),
        state("end", vec![]),
    ]);
    Drive::new(chart, json!({}))
}

#[test]
fn events_of_an_invocation_stay_in_its_part() {
    let mut drive = nested_agents();
    let (outer, ask, nested) = (drive.at("p.outer"), drive.at("p.outer.ask"), drive.at("p.outer.nested"));
    let pick = |state| EventScope::Invocation { state, pick: true };
    assert!(drive.scoped("pick", pick(outer)));
    assert_eq!(drive.value(), json!({"p": {"outer": "ask", "side": "s"}}), "the side region is no party to a pick");
    assert!(drive.scoped("yes", EventScope::Invocation { state: ask, pick: false }));
    assert!(drive.scoped("deeper", pick(outer)));
    assert!(!drive.scoped("pick", pick(outer)), "a nested Agent's part is not the outer one's");
    assert!(!drive.scoped("mine", pick(nested)), "nor the other way round");
    assert!(
        !drive.scoped("agent.done", EventScope::Invocation { state: nested, pick: false }),
        "only a pick reaches below"
    );
    assert!(drive.scoped("own", pick(nested)));
    assert_eq!(drive.value(), json!({"p": {"outer": "plain", "side": "s"}}));
    assert!(drive.scoped("agent.fault", EventScope::Invocation { state: outer, pick: false }));
    assert_eq!(drive.value(), json!("end"));
}

#[test]
fn parts_and_allowed_picks() {
    let mut drive = nested_agents();
    let (outer, nested) = (drive.at("p.outer"), drive.at("p.outer.nested"));
    let part = |drive: &Drive, ix| -> Vec<String> {
        drive.chart.agent_part(ix).iter().map(|&ix| drive.chart.state(ix).path.clone()).collect()
    };
    assert_eq!(part(&drive, outer), ["", "p", "p.outer", "p.outer.plain", "p.outer.ask"]);
    assert_eq!(part(&drive, nested), ["p.outer.nested", "p.outer.nested.deep"]);
    let may = |drive: &Drive, event: &str, ix| may_fire(&drive.chart, &drive.now, event, ix, &env());
    assert!(
        may(&drive, "pick", outer)
            && may(&drive, "mine", outer)
            && may(&drive, "up", outer)
            && !may(&drive, "own", outer)
    );
    assert!(!may(&drive, "own", nested), "its state is not active");
    drive.send("deeper");
    assert!(may(&drive, "own", nested) && may(&drive, "pick", nested) && !may(&drive, "mine", nested));
    assert!(!may(&drive, "pick", outer));
}

#[test]
fn allowed_picks_fail_open() {
    let chart = chart(vec![
        state("a", vec![])
            .agent("x")
            .way(on("payload", "").when("event.summary == 'x'"))
            .way(on("fails", "").when("context.missing"))
            .way(on("closed", "").when("context.n > 1"))
            .way(on("typed", "").when("event.type == 'typed'")),
    ]);
    let drive = Drive::new(chart, json!({"n": 1}));
    let may = |event: &str| may_fire(&drive.chart, &drive.now, event, 1, &env());
    assert!(may("payload") && may("fails") && may("typed"));
    assert!(!may("closed") && !may("unknown"));
}

#[test]
fn a_failing_macrostep_is_discarded_whole() {
    let chart = chart(vec![
        state("a", vec![])
            .way(on("bad", "b").act(set(&[("n", "context.n + 1")])))
            .way(on("loop", "l"))
            .way(on("grow", "").act(set(&[("list", "context.list + context.list")])))
            .way(on("huge", "g")),
        state("b", vec![]).enter(set(&[("n", "context.text + 1")])),
        state("l", vec![]).way(always("m")),
        state("m", vec![]).way(always("l")),
        state("g", vec![]).way(
            always("g").when("context.n < 900").act(set(&[("n", "context.n + 1"), ("list", "[context.list, 1]")])),
        ),
    ]);
    let drive = Drive::new(chart, json!({"n": 1, "text": "x", "list": [1]}));
    let before = drive.now.clone();
    let failed = |name: &str| drive.try_send(name, json!({}), EventScope::Broadcast).unwrap_err();
    let StepError::Expression { place, error: ExpressionError { message, offset } } = failed("bad") else { panic!() };
    assert_eq!((place.as_str(), offset), ("states.b.enter.set.n", Some(13)));
    assert!(message.starts_with("`+` does not work on a string and an int"));
    assert_eq!(failed("loop"), StepError::Microsteps);
    assert!(failed("huge").to_string().contains("nests deeper than 64"));
    assert_eq!(drive.now, before);
}

#[test]
fn the_context_has_a_bound() {
    let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let pairs: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "event.text")).collect();
    let chart = chart(vec![state("a", vec![]).way(on("fill", "").act(set(&pairs)))]);
    let drive = Drive::new(chart, json!({}));
    let send = |bytes: usize| drive.try_send("fill", json!({"text": "x".repeat(bytes)}), EventScope::Broadcast);
    assert!(send(50_000).is_ok());
    assert_eq!(send(60_000).unwrap_err(), StepError::ContextTooLarge(CONTEXT_BYTES_MAX));
}

#[test]
fn between_regions_the_parallel_state_stays_and_all_regions_are_left() {
    let draft = state(
        "",
        vec![parallel("p", vec![state("l", vec![]).on("self", "p.l"), state("r", vec![]).on("over", "p.l")])],
    );
    let mut drive = Drive::new(root(draft.traced("")), json!({}));
    for event in ["self", "over"] {
        drive.send(event);
        assert_eq!(drive.said(), ["-p.r", "-p.l", "+p.l", "+p.r"].map(|text| json!(text)), "{event}");
    }
}

#[test]
fn a_parallel_root_moves_and_ends() {
    let region = |key: &str| {
        state(key, vec![state("run", vec![]).on("end", &format!("{key}.end")), done("end")]).way(on("again", key))
    };
    let mut drive = Drive::new(root(parallel("", vec![region("l"), region("r")]).on("jump", "l.end")), json!({}));
    drive.send("jump");
    assert_eq!(drive.value(), json!({"l": "end", "r": "run"}));
    drive.send("end");
    assert!(drive.now.finished);
}

#[test]
fn a_configuration_that_is_not_legal_is_named() {
    let drive = nested_agents();
    let wrong = |change: &dyn Fn(&mut Configuration)| {
        let mut configuration = drive.now.clone();
        change(&mut configuration);
        configuration.is_legal(&drive.chart).unwrap_err()
    };
    assert_eq!(
        wrong(&|c| {
            c.active.insert(99);
        }),
        "state 99 does not exist"
    );
    assert_eq!(wrong(&|c| c.active.clear()), "the root is not active");
    assert!(
        wrong(&|c| {
            c.active.remove(&1);
        })
        .contains("has 0 active children instead of 1")
    );
    assert!(
        wrong(&|c| {
            c.active.insert(4);
        })
        .contains("has 2 active children instead of 1")
    );
    assert!(
        wrong(&|c| {
            c.history.insert(4, vec![1]);
        })
        .contains("outside of it")
    );
}

#[test]
fn the_saved_form_stays() {
    let drive = nested_agents();
    let text = serde_json::to_string(&drive.now).unwrap();
    assert_eq!(text, r#"{"active":[0,1,2,3,7,8],"ordinals":{"2":1}}"#);
    assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), drive.now);
}
