//! Which worker holds which prefix, on which tier.
//!
//! The index is fed with [block events](routing::BlockEvent) and answers how many of a prompt's first tokens each worker
//! has cached. It is exact for what it was told: an answer may fall short of the truth (an event is still on its way, a
//! parent was never announced, the bound is reached), but it never claims a block that no event stored or that an event
//! removed. Besides, requests that were just sent somewhere are [expected](SharedPrefixIndex::expect) to be cached there.
//! How engine hashes become comparable between workers: `host/adr/0004-prefix-identity.md`; how it is kept:
//! `host/adr/0007-run-compressed-index.md`.
//!
//! Bottom up: `table` (hash to number), `extent` (sixteen blocks), `run` and `coverage` (a chain, and who holds what of it),
//! `forest` (all chains), `cache` (what one engine calls its blocks), `core` with `ingest`, `hold`, `removal`, `objects`, `expected`
//! and `reclaim`
//! (how it changes), `naming`, `path`, `walk`, `hybrid` and `query` (how it
//! answers), `polite` and `shared` (how threads share it).
//!
//! It must not know where events come from, what a request is, or what time it is.

mod cache;
mod core;
mod count;
mod coverage;
mod expected;
mod extent;
mod forest;
mod hash;
mod hold;
mod hybrid;
mod ingest;
mod lanes;
mod naming;
mod objects;
mod path;
mod polite;
mod prompt;
mod query;
mod reclaim;
mod removal;
mod rows;
mod run;
mod shared;
mod sync;
mod table;
mod walk;

pub use count::{Applied, IndexLimits, IndexStats, ObjectsApplied};
pub use expected::Sent;
pub use hash::SEQUENCE_HASH_SEED;
pub use prompt::Prompt;
pub use query::{RankMatch, WorkerMatch};
pub use shared::{Holder, SharedPrefixIndex};
