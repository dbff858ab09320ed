//! `kill_list_answer`: the body is `jr2_proof::fuzz::kill_list_answer`, which ordinary tests run over the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jr2_proof::fuzz::kill_list_answer(bytes));
