//! Fuzzes `flash_checks::tls`, whose documentation describes the input and the checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| flash_checks::tls(input));
