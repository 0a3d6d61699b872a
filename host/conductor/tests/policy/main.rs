//! `conductor policy ...` as its users run it: the binary, its exit code and what it prints.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod binary;
mod build;
mod check;
mod compiler;
mod components;
mod look;
mod new;
mod parameters;
mod replay;
