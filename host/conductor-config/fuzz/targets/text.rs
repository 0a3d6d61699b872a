//! A configuration: whatever its text is, no claim of the tests is broken.

#![no_main]

#[path = "../../tests/claims/mod.rs"]
mod claims;

libfuzzer_sys::fuzz_target!(|text: &str| claims::text(text));
