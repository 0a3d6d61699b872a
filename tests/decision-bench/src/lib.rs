//! Benches: a decision through WebAssembly against the same policy native.
