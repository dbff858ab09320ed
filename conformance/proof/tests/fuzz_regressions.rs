//! The fuzzer's corpus through the same functions, on every change: what once broke stays in it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use jr2_proof::fuzz;
use std::path::Path;

/// A target's name and its body.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 6] = [
    ("kills_file", fuzz::kills_file),
    ("kill_list_answer", fuzz::kill_list_answer),
    ("stream_events", fuzz::stream_events),
    ("admit_body", fuzz::admit_body),
    ("surface_answer", fuzz::surface_answer),
    ("model_stream", fuzz::model_stream),
];

#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    for (name, body) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(inputs.len() > 1, "{} is nearly empty", folder.display());
        for input in inputs {
            let bytes = std::fs::read(&input).unwrap();
            body(&bytes);
            body(&bytes[..bytes.len() / 2]);
        }
    }
}

#[test]
fn every_target_has_a_binary() {
    assert_eq!(TARGETS.map(|(name, _)| name), fuzz::TARGETS);
    for (name, _) in TARGETS {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs")).is_file(), "{name}");
    }
}
