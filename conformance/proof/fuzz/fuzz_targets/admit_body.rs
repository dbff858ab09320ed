//! `admit_body`: the body is `jr2_proof::fuzz::admit_body`, which ordinary tests run over the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| jr2_proof::fuzz::admit_body(bytes));
