//! A naive reference of the index and what drives both with the same events. It keeps whole contents, compares instead
//! of hashing, and is written from the documented meaning of events alone; it must not know how the index works. Used
//! by `tests/differential.rs` and, at length, by `examples/soak`.
#![allow(dead_code, reason = "each binary that includes this uses its part")]

pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod engines;
pub(crate) mod model;
pub(crate) mod oracle;
pub(crate) mod run;
pub(crate) mod script;
