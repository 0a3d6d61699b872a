//! The key of a store's object: whatever it is, no claim of the tests is broken.

#![no_main]

#[path = "../../tests/it/claims.rs"]
#[expect(dead_code, reason = "each target makes its own claim")]
mod claims;

libfuzzer_sys::fuzz_target!(|key: &str| claims::object_key(key));
