use super::*;
use crate::model::{ToolCall, Usage};
use proptest::prelude::*;

fn user(bytes: usize) -> ChatMessage {
    ChatMessage::User("u".repeat(bytes))
}

/// An answer with `calls` calls and their results of `bytes` each.
fn step(n: usize, calls: usize, bytes: usize) -> Vec<ChatMessage> {
    let call = |at: usize| ToolCall { id: format!("c{n}-{at}"), name: "bash".into(), arguments: "{}".into() };
    let all: Vec<ToolCall> = (0..calls).map(call).collect();
    let results = all.iter().map(|call| ChatMessage::Tool { call_id: call.id.clone(), content: "r".repeat(bytes) });
    let results: Vec<_> = results.collect();
    let answer = ChatMessage::Assistant { text: format!("step {n}"), reasoning: None, tool_calls: all };
    std::iter::once(answer).chain(results).collect()
}

fn context(tail: Vec<ChatMessage>, counted: Option<u64>) -> Context {
    let counted = counted.map(|tokens| Counted { tokens, at: tail.len() });
    Context { summary: None, from: 0, tail, counted }
}

/// A task and `steps` steps with results of 4,000 bytes: about 1,000 tokens each.
fn long(steps: usize) -> Vec<ChatMessage> {
    std::iter::once(user(400)).chain((0..steps).flat_map(|n| step(n, 1, 4_000))).collect()
}

fn usage(prompt: u64) -> Usage {
    Usage { prompt_tokens: Some(prompt), ..Usage::default() }
}

fn compacts(guide: &mut Guide, context: &Context, budget: Budget) -> Plan {
    match guide.next(context, Some(budget)) {
        Next::Compact(plan) => plan,
        other => panic!("{other:?}"),
    }
}

/// Every result stands behind the call it answers.
fn whole(messages: &[ChatMessage]) -> bool {
    let mut open: Vec<&str> = Vec::new();
    messages.iter().all(|message| match message {
        ChatMessage::Assistant { tool_calls, .. } => {
            open = tool_calls.iter().map(|call| call.id.as_str()).collect();
            true
        }
        ChatMessage::Tool { call_id, .. } => open.contains(&call_id.as_str()),
        _ => true,
    })
}

#[test]
fn h_33_compacts_above_the_threshold_and_not_at_it() {
    let budget = Budget::of(200_000, None);
    let at = |tokens| Guide::default().next(&context(long(60), Some(tokens)), Some(budget));
    assert_eq!(at(budget.threshold()), Next::Ask);
    assert!(matches!(at(budget.threshold() + 1), Next::Compact(_)));
    let mut grown = context(long(60), Some(budget.threshold() - 10));
    grown.tail.push(user(4_000));
    let next = Guide::default().next(&grown, Some(budget));
    assert!(matches!(next, Next::Compact(_)), "what came since the count is measured");
}

#[test]
fn h_35_an_unknown_window_or_count_compacts_nothing() {
    let big = context(long(60), Some(1_000_000));
    assert_eq!(Guide::default().next(&big, None), Next::Ask);
    let uncounted = context(long(60), None);
    assert_eq!(Guide::default().next(&uncounted, Some(Budget::of(8_192, None))), Next::Ask);
    let mut refused = Guide::default();
    refused.overflowed();
    assert!(matches!(refused.next(&uncounted, Some(Budget::of(8_192, None))), Next::Compact(_)), "the server counted");
}

#[test]
fn h_34_the_newest_tokens_stay_and_a_call_keeps_its_results() {
    let context = context(long(60), Some(190_000));
    let plan = compacts(&mut Guide::default(), &context, Budget::of(200_000, None));
    let stays: u64 = context.tail[plan.from..].iter().map(|m| scaled(tokens_of(m), plan.scale)).sum();
    assert!((16_000..=20_000).contains(&stays), "{stays}");
    assert!(matches!(context.tail[plan.from], ChatMessage::Assistant { .. }));
    assert_eq!(plan.tokens, 190_000);
}

#[test]
fn h_34_a_step_larger_than_what_may_stay_is_kept_whole() {
    let mut tail = long(3);
    tail.extend(step(9, 3, 90_000));
    let plan = compacts(&mut Guide::default(), &context(tail.clone(), Some(190_000)), Budget::of(200_000, None));
    assert_eq!(plan.from, tail.len() - 4, "the answer and its three results");
}

#[test]
fn h_34_a_second_cut_summarises_what_the_first_kept() {
    let budget = Budget::of(200_000, None);
    let mut guide = Guide::default();
    let first = context(long(60), Some(190_000));
    let plan = compacts(&mut guide, &first, budget);
    let mut tail = first.tail[plan.from..].to_vec();
    tail.extend((60..100).flat_map(|n| step(n, 1, 4_000)));
    let counted = Some(Counted { tokens: 190_000, at: plan.from + tail.len() });
    let second = Context { summary: Some("Earlier: the task is X.".into()), from: plan.from, tail, counted };
    let again = compacts(&mut guide, &second, budget);
    assert!(again.from > plan.from);
    let ChatMessage::User(asked) = &summary_question(&second, &again)[1] else { panic!() };
    assert!(asked.contains("Earlier: the task is X."), "the earlier summary is carried on");
    for message in &second.tail[..again.from - plan.from] {
        if let ChatMessage::Assistant { text, .. } = message {
            assert!(asked.contains(&format!("[Agent]: {text}\n")), "{text} is neither sent nor summarised");
        }
    }
}

#[test]
fn f38_compaction_that_does_not_help_ends_with_a_clear_fault() {
    let budget = Budget::of(8_192, None);
    let mut guide = Guide::default();
    let context = context(long(20), Some(8_000));
    for _ in 0..IN_A_ROW_MAX {
        compacts(&mut guide, &context, budget);
        guide.compacted();
        guide.answered(Some(usage(8_000)), Some(budget));
    }
    let Next::Fail(words) = guide.next(&context, Some(budget)) else { panic!() };
    assert_eq!(words, "compacted 3 times in a row, and about 8000 tokens are still too many for the window of 8192");
}

#[test]
fn f38_cuts_that_help_are_not_counted() {
    let budget = Budget::of(8_192, None);
    let mut guide = Guide::default();
    for _ in 0..10 {
        compacts(&mut guide, &context(long(20), Some(8_000)), budget);
        guide.compacted();
        guide.answered(Some(usage(2_000)), Some(budget));
    }
}

#[test]
fn f39_an_overflow_cuts_even_when_the_count_says_it_fits_and_ends_when_nothing_is_left() {
    let budget = Budget::of(8_192, None);
    let mut guide = Guide::default();
    let small = context(long(3), Some(2_000));
    assert_eq!(guide.next(&small, Some(budget)), Next::Ask);
    assert_eq!(guide.overflowed(), 2_000);
    compacts(&mut guide, &small, budget);
    let one = context(vec![user(40_000)], None);
    let Next::Fail(words) = guide.next(&one, Some(budget)) else { panic!() };
    assert_eq!(words, "the window of 8192 tokens is too small, and nothing is left to compact");
}

#[test]
fn a_server_whose_tokens_are_dearer_than_ours_is_believed() {
    let tail = long(60);
    let estimated: u64 = tail.iter().map(tokens_of).sum();
    let dear = context(tail, Some(estimated * 2));
    let plan = compacts(&mut Guide::default(), &dear, Budget::of(100_000, None));
    assert!((1.9..=2.1).contains(&plan.scale), "{}", plan.scale);
    let stays: u64 = dear.tail[plan.from..].iter().map(tokens_of).sum();
    assert!(stays <= 10_000, "{stays} of ours are 20,000 of its");
}

#[test]
fn h_36_the_summary_is_a_user_side_message_with_fixed_words() {
    let messages = Context { summary: Some("S".into()), from: 3, tail: vec![user(1)], counted: None }.into_messages();
    let ChatMessage::User(text) = &messages[0] else { panic!() };
    assert_eq!(
        text,
        "The conversation history before this point was compacted into this summary:\n\n<summary>\nS\n</summary>"
    );
    assert_eq!(messages[1], user(1));
}

fn any_message() -> impl Strategy<Value = Vec<ChatMessage>> {
    prop_oneof![
        (0usize..30_000).prop_map(|bytes| vec![user(bytes)]),
        (0usize..4, 0usize..30_000).prop_map(|(calls, bytes)| step(bytes, calls, bytes)),
        "\\PC{0,400}".prop_map(|text| vec![ChatMessage::User(text)]),
    ]
}

proptest! {
    /// F37 and H-34 for every conversation, window and count: a cut leaves whole steps and makes the context smaller, and
    /// the summariser's question is within its bound as the plan counts it.
    #[test]
    fn f37_the_question_for_a_summary_is_measured_before_it_is_sent(
        parts in proptest::collection::vec(any_message(), 1..40),
        window in 3_000u64..300_000, counted in 1u64..2_000_000,
        summary in proptest::option::of("[a-z ]{0,4000}"),
    ) {
        let tail: Vec<ChatMessage> = parts.concat();
        let counted = Some(Counted { tokens: counted, at: 5 + tail.len() });
        let context = Context { summary, from: 5, tail, counted };
        let budget = Budget::of(window, None);
        if let Next::Compact(plan) = Guide::default().next(&context, Some(budget)) {
            prop_assert!(plan.from > 5 && plan.from < 5 + context.tail.len());
            prop_assert!(whole(&context.tail[plan.from - 5..]));
            let asked = summary_question(&context, &plan);
            let tokens: u64 = asked.iter().map(|m| scaled(tokens_of(m), plan.scale.max(1.0))).sum();
            let words = scaled(tokens_of_bytes(briefing::SUMMARY_SYSTEM.len() + briefing::SUMMARY_REQUEST.len()) + 64, 4.0);
            prop_assert!(tokens <= budget.question().max(words), "{tokens} > {}", budget.question());
        }
    }
}
