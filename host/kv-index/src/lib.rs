//! Which worker holds which prefix, on which tier.
//!
//! The index is fed with [block events](routing::BlockEvent) and answers how many of a prompt's first tokens each worker
//! has cached. It is exact for what it was told: an answer may fall short of the truth (an event is still on its way, a
//! parent was never announced, the bound is reached), but it never claims a block that no event stored or that an event
//! removed. How engine hashes become comparable between workers: `host/adr/0004-prefix-identity.md`.
//!
//! It must not know where events come from, what a request is, or what time it is.

mod chain;
mod content;
mod core;
mod count;
mod query;
mod shared;
mod slots;

pub use count::{Applied, IndexLimits, IndexStats};
pub use query::{PrefixQuery, WorkerMatch};
pub use shared::{Holder, SharedPrefixIndex};
