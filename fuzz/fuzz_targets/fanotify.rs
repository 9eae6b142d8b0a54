//! Fuzzes `flash_checks::fanotify`, whose documentation describes the input and the checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| flash_checks::fanotify(input));
