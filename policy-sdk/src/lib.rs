//! Write a Conductor scheduling policy in Rust: one small trait, native tests, one macro.
