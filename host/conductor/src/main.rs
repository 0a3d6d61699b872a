//! The `conductor` binary.
fn main() {}
