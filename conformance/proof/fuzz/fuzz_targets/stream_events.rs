//! `stream_events`: the body is `jr2_proof::fuzz::stream_events`, which ordinary tests run over the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jr2_proof::fuzz::stream_events(bytes));
