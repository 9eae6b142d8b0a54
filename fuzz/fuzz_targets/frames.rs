//! Fuzzes `flash_checks::frames`, whose documentation describes the input and the checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| flash_checks::frames(input));
