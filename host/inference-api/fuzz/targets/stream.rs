//! An engine's stream of events: whatever it is, no claim of the tests is broken.

#![no_main]

#[path = "../../tests/claims/mod.rs"]
#[expect(dead_code, reason = "each target makes its own claim")]
mod claims;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| claims::stream(bytes));
