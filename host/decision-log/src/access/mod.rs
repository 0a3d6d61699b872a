//! Access log: one JSON line for each request, at its end.
//!
//! The thread of a request fills an [`AccessLine`] and sends it. The writer thread formats it. The lines have no text
//! of prompts, no header values, no query strings and no keys.

mod line;
mod timestamp;

pub use line::{
    AccessEnd, AccessLine, AccessPlacement, AccessPolicy, AccessRequest, AccessSize, AccessStages,
    AccessTimes,
};
