use super::*;
use crate::model::{ToolCall, Verdict};
use proptest::prelude::*;
use serde_json::json;

type Outcome = (Vec<DecodeEvent>, Result<ModelAnswer, StreamFault>);

fn decode_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = Decoder::new("t");
    let mut events = Vec::new();
    for part in parts {
        events.extend(decoder.push(part));
    }
    (events, decoder.finish())
}

fn decode(text: &str) -> Result<ModelAnswer, StreamFault> {
    decode_parts([text.as_bytes()]).1
}

/// Chunks as a server sends them, without an end.
fn stream(chunks: &[Value]) -> String {
    chunks.iter().fold(String::new(), |text, chunk| text + &format!("data: {chunk}\n\n"))
}

fn done(chunks: &[Value]) -> String {
    stream(chunks) + "data: [DONE]\n\n"
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(id: &str, arguments: &str) -> Value {
    delta(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": "x", "arguments": arguments}}]}))
}

/// The recorded bodies, by name, without their HTTP heads.
fn goldens() -> Vec<(String, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/fixtures/llm-sse");
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| {
            let raw = std::fs::read(&path).unwrap();
            let head = raw.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), raw[head..].to_vec())
        })
        .collect();
    all.sort();
    assert_eq!(all.len(), 14);
    all
}

fn golden(prefix: &str) -> Result<ModelAnswer, StreamFault> {
    let body = goldens().into_iter().find(|(name, _)| name.starts_with(prefix)).unwrap().1;
    decode_parts([&body[..]]).1
}

#[test]
fn every_golden_decodes() {
    for (name, body) in goldens() {
        let result = decode_parts([&body[..]]).1;
        assert_eq!(result.is_err(), name.contains("error"), "{name}: {result:?}");
    }
    let plain = golden("01").unwrap();
    assert_eq!(
        (plain.text.as_str(), plain.finish, plain.usage),
        ("The capital of France is Paris.", Finish::Stop, None)
    );
    assert_eq!(golden("02").unwrap().usage.unwrap().completion_tokens, Some(8));
    assert_eq!(golden("03").unwrap().finish, Finish::Length);
    let two = golden("04").unwrap();
    assert_eq!(two.tool_calls.len(), 2);
    assert!(matches!(two.verdict(0), Verdict::Run(_)));
    for name in ["05", "06"] {
        let cut = golden(name).unwrap();
        assert_eq!((cut.tool_calls.len(), cut.finish.clone()), (1, Finish::Length));
        assert!(matches!(cut.verdict(0), Verdict::Cut(_)));
    }
    let whole_body = golden("11").unwrap();
    assert!(matches!(whole_body.verdict(0), Verdict::Run(_)));
    assert!(matches!(whole_body.verdict(1), Verdict::Cut(_)));
    let clean = golden("13").unwrap();
    assert!(matches!(clean.verdict(0), Verdict::Run(_)));
    assert_eq!(clean.finish, Finish::ToolCalls);
    let Err(StreamFault::Server { status, code, message }) = golden("08") else { panic!() };
    assert_eq!((status, code.as_str()), (Some(400), "400 exceed_context_size_error"));
    assert!(message.ends_with("(n_ctx 8192)"), "{message}");
}

/// Each split is checked over the lines around it, from a decoder that has read all before them: when the events and the
/// framing state agree there, everything after agrees too.
#[test]
fn every_golden_decodes_alike_at_every_split() {
    for (name, body) in goldens() {
        let whole = decode_parts([&body[..]]);
        assert_eq!(decode_parts(body.chunks(1)), whole, "{name} byte by byte");
        let ends: Vec<usize> = (1..body.len()).filter(|at| body[at - 1] == b'\n').chain([body.len()]).collect();
        let (mut base, mut start) = (Decoder::new("t"), 0);
        for (n, &end) in ends.iter().enumerate() {
            let stop = ends[(n + 2).min(ends.len() - 1)];
            let mut unsplit = base.clone();
            let events = unsplit.push(&body[start..stop]);
            for at in start..end {
                let mut split = base.clone();
                let mut got = split.push(&body[start..at]);
                got.extend(split.push(&body[at..stop]));
                assert_eq!((&got, &split.framer), (&events, &unsplit.framer), "{name} at {at}");
                if stop == body.len() {
                    assert_eq!(split.finish(), whole.1, "{name} at {at}");
                }
            }
            base.push(&body[start..end]);
            start = end;
        }
    }
}

/// katanemo/plano#980, api7/aisix#111, spiceai/spiceai#12588
#[test]
fn f32_a_character_cut_by_a_read_is_whole() {
    let text = "日本語 🦀 é 👩‍👩‍👧";
    let bodies = [done(&[delta(json!({"content": text})), end("stop")]).replace('\n', "\r\n"), {
        let whole = json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]});
        whole.to_string()
    }];
    for body in bodies {
        let body = format!("\u{feff}{body}");
        for at in 0..=body.len() {
            let (first, second) = body.as_bytes().split_at(at);
            assert_eq!(decode_parts([first, second]).1.unwrap().text, text, "at {at}");
        }
    }
}

/// block/goose#4276, cline/cline#8518, microsoft/foundry-local#905, awslabs/llmeter#34
#[test]
fn f01_f02_f03_a_chunk_without_choices_is_legal() {
    for choices in [json!([]), Value::Null] {
        let usage = json!({"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        for body in [
            done(&[usage.clone(), delta(json!({"content": "hi"})), end("stop"), usage.clone()]),
            stream(&[delta(json!({"content": "hi"})), end("stop"), usage.clone()]),
            stream(&[delta(json!({"content": "hi"})), usage.clone()]),
        ] {
            let answer = decode(&body).unwrap();
            assert_eq!(answer.text, "hi");
            assert_eq!(answer.usage.unwrap().prompt_tokens, Some(3));
        }
    }
}

/// waybarrios/vllm-mlx#628
#[test]
fn f04_done_ends_an_answer_without_a_reason() {
    assert_eq!(decode(&done(&[delta(json!({"content": "hi"}))])).unwrap().finish, Finish::Stop);
}

/// ollama/ollama#17118
#[test]
fn f06_a_clean_close_without_an_end_is_a_cut_stream() {
    assert_eq!(decode(&stream(&[delta(json!({"reasoning": "hm"}))])), Err(StreamFault::Cut));
    assert_eq!(decode(&stream(&[delta(json!({"content": "hi"}))])), Err(StreamFault::Cut));
    assert_eq!(decode(""), Err(StreamFault::Cut));
    assert_eq!(decode("<html>busy</html>"), Err(StreamFault::Cut));
}

/// BerriAI/litellm#35663, BerriAI/litellm#12481
#[test]
fn f08_calls_count_by_their_presence() {
    for reason in ["stop", "weird"] {
        let answer = decode(&done(&[call("a", "{}"), end(reason)])).unwrap();
        assert_eq!((answer.tool_calls.len(), answer.finish), (1, Finish::ToolCalls));
    }
}

/// vllm-project/vllm#16340
#[test]
fn f14_the_type_of_a_call_is_optional() {
    assert_eq!(
        decode(&done(&[call("a", "{}")])).unwrap().tool_calls,
        vec![ToolCall { id: "a".into(), name: "x".into(), arguments: "{}".into() }]
    );
}

/// vllm-project/vllm#36849, vllm-project/vllm#49216
#[test]
fn f15_an_error_in_the_stream_is_a_typed_fault() {
    let errors = [
        "data: {\"error\":{\"message\":\"boom\",\"code\":500}}\n\n",
        "data: {\"object\":\"error\",\"message\":\"boom\",\"code\":500}\n\n",
        "{\"error\":{\"message\":\"boom\",\"code\":\"500\"}}\n",
        "event: error\ndata: {\"message\":\"boom\",\"code\":500}\n\n",
        "error: {\"code\":500,\"message\":\"boom\"}\n\n",
    ];
    for error in errors {
        let (events, result) = decode_parts([(stream(&[call("a", "{\"k\":")]) + error + &done(&[])).as_bytes()]);
        let Err(StreamFault::Server { status: Some(500), message, .. }) = result else { panic!("{error}: {result:?}") };
        assert_eq!(message, "boom");
        assert!(matches!(events.last(), Some(DecodeEvent::Fault(_))));
    }
    assert!(matches!(decode("data: {\"error\":\"boom\"}\n\n"), Err(StreamFault::Server { status: None, .. })));
    let mut decoder = Decoder::new("t");
    decoder.push(stream(&[delta(json!({"content": "hi"})), call("a", "{\"k\":")]).as_bytes());
    assert_eq!(decoder.partial(), ModelAnswer { text: "hi".into(), ..ModelAnswer::empty() });
}

/// vllm-project/vllm#55633
#[test]
fn f18_white_space_is_no_answer() {
    let answer = decode(&done(&[delta(json!({"content": "\n\n "})), end("stop")])).unwrap();
    assert!(answer.is_empty());
    assert_eq!(answer.text, "");
}

/// agentscope-ai/QwenPaw#3560
#[test]
fn f19_a_parse_error_of_the_server_is_a_typed_fault() {
    let body = stream(&[delta(json!({"content": "a"}))])
        + "data: {\"error\":{\"code\":500,\"message\":\"Failed to parse input at pos 12\",\"type\":\"server_error\"}}\n\n";
    assert!(matches!(decode(&body), Err(StreamFault::Server { status: Some(500), .. })));
}

/// cline/cline#13165, vllm-project/vllm#39056
#[test]
fn f16_f29_reasoning_alone_is_no_answer() {
    for key in ["reasoning", "reasoning_content"] {
        let answer = decode(&done(&[delta(json!({key: "<tool_call>{}"})), end("stop")])).unwrap();
        assert!(answer.is_empty());
        assert_eq!(answer.reasoning.as_deref(), Some("<tool_call>{}"));
    }
    let both = decode(&done(&[delta(json!({"reasoning": "a", "reasoning_content": "a", "content": "b"}))])).unwrap();
    assert_eq!((both.reasoning.as_deref(), both.text.as_str()), (Some("a"), "b"));
}

/// vllm-project/vllm#7299, vllm-project/vllm#19263
#[test]
fn f34_no_usage_is_unknown() {
    let answer = decode(&done(&[json!({"choices": [], "usage": null}), delta(json!({"content": "a"}))])).unwrap();
    assert_eq!(answer.usage, None);
    let partly = decode(&done(&[json!({"usage": {"prompt_tokens": 1}})])).unwrap().usage.unwrap();
    assert_eq!((partly.prompt_tokens, partly.completion_tokens), (Some(1), None));
}

/// vllm-project/vllm#8625, tjardoo/openai-client#140
#[test]
fn f35_the_last_usage_wins() {
    let with = |n: u64| {
        let mut chunk = delta(json!({"content": "a"}));
        chunk["usage"] = json!({"completion_tokens": n});
        chunk
    };
    let body = stream(&[with(1), with(2), with(5)]);
    assert_eq!(decode(&body), Err(StreamFault::Cut), "usage beside choices is no end");
    assert_eq!(decode(&(body + "data: [DONE]\n\n")).unwrap().usage.unwrap().completion_tokens, Some(5));
}

/// vllm-project/vllm#56263
#[test]
fn f40_a_whole_body_reads_like_a_stream() {
    let message = json!({"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls":
        [{"id": "a", "type": "function", "function": {"name": "x", "arguments": {"k": 1}}}]});
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 2});
    let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": usage});
    let streamed = done(&[
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"content": "hi"})),
        call("a", "{\"k\":"),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]})),
        end("tool_calls"),
        json!({"choices": [], "usage": usage}),
    ]);
    assert_eq!(decode(&body.to_string()).unwrap(), decode(&streamed).unwrap());
    assert_eq!(decode(&format!("data: {body}\n\n")).unwrap(), decode(&streamed).unwrap());
}

#[test]
fn odd_values_are_tolerated() {
    let body = done(&[
        json!(1),
        json!([]),
        json!({"choices": [{}]}),
        json!({"choices": [{"delta": null, "finish_reason": ""}]}),
        json!({"choices": [{"delta": {"content": [{"type": "text", "text": "a"}], "tool_calls": null}}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "other"}}, {"delta": {"content": "b"}}]}),
        json!({"choices": [{"delta": {"refusal": "c", "content": null}, "finish_reason": "new_reason"}]}),
        json!({"prompt_progress": {"total": 1}, "error": null}),
    ]);
    let answer = decode(&body).unwrap();
    assert_eq!((answer.text.as_str(), answer.finish), ("abc", Finish::Unknown(Some("new_reason".into()))));
    assert_eq!(decode("data: {\"choices\":\n\n"), Err(StreamFault::Malformed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_split_alike(
        body in proptest::collection::vec(any::<u8>(), 0..400), a in 0usize..400, b in 0usize..400,
    ) {
        let (a, b) = (a.min(body.len()), b.min(body.len()));
        let (a, b) = (a.min(b), a.max(b));
        let whole = decode_parts([&body[..]]);
        prop_assert_eq!(decode_parts([&body[..a], &body[a..b], &body[b..]]), whole);
    }

    #[test]
    fn damaged_streams_never_panic_and_split_alike(
        which in 0usize..14, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut body = goldens().swap_remove(which).1;
        let at = at.index(body.len());
        body[at] = byte;
        let cut = cut.index(body.len());
        let whole = decode_parts([&body[..]]);
        prop_assert_eq!(decode_parts([&body[..cut], &body[cut..]]), whole);
    }

    #[test]
    fn generated_deltas_never_panic(
        deltas in proptest::collection::vec(
            (proptest::option::of(0u64..3), proptest::option::of("[ab]?"), proptest::option::of("[xy]?"),
             proptest::option::of("[{}\":1 ]{0,4}")), 0..12),
    ) {
        let chunks: Vec<Value> = deltas.iter().map(|(index, id, name, arguments)| delta(json!({"tool_calls":
            [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}))).collect();
        let answer = decode(&done(&chunks)).unwrap();
        let ids: std::collections::BTreeSet<_> = answer.tool_calls.iter().map(|c| &c.id).collect();
        prop_assert_eq!(ids.len(), answer.tool_calls.len());
        prop_assert!(answer.tool_calls.iter().all(|c| !c.id.is_empty() && !c.name.is_empty()));
        for n in 0..answer.tool_calls.len() { answer.verdict(n); }
    }
}
