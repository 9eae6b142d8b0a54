//! Feeds `flash_checks::body`, which says what it checks and what the input is.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| flash_checks::body(input));
