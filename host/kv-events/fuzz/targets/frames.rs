//! The frames of a live message and of a replay's part: whatever it is, no claim of the tests is broken.

#![no_main]

#[path = "../../tests/it/claims.rs"]
#[expect(dead_code, reason = "each target makes its own claim")]
mod claims;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| claims::frames(bytes));
