//! KV-cache prefix index: which worker holds which prefix, on which tier.
//!
//! The index applies [block events](routing::BlockEvent) and returns the number of leading prompt tokens that each
//! worker has cached. It is exact for its events. An answer may fall short of the truth: an event is still in flight,
//! a parent was never announced, or the limit is reached. It never reports a block that no event stored or that an
//! event removed. In addition, requests that were just sent insert [predicted blocks](SharedPrefixIndex::expect). ADR
//! 0004 describes how hashes of different engines become comparable (`host/adr/0004-prefix-identity.md`), ADR 0007 the
//! data structure (`host/adr/0007-run-compressed-index.md`).
//!
//! Modules, bottom up:
//! - storage: `table` (hash to number), `extent` (sixteen blocks), `run` and `coverage` (a chain and its holders),
//!   `forest` (all chains), `cache` (a cache's lanes and block names)
//! - changes: `core` with `ingest`, `hold`, `removal`, `objects`, `expected`, `reclaim` and `snapshot`
//! - queries: `naming`, `path`, `walk`, `hybrid`, `query`, `holdings` and `survey`
//! - threads: `reader_preferring` and `shared`
//!
//! The crate does not know the sources of events, requests, or time.

mod cache;
mod core;
mod count;
mod coverage;
mod expected;
mod extent;
mod forest;
mod hash;
mod hold;
mod holder;
mod holdings;
mod hybrid;
mod ingest;
mod lanes;
mod naming;
mod objects;
mod path;
mod prompt;
mod query;
mod reader_preferring;
mod reclaim;
mod removal;
mod run;
mod shared;
mod snapshot;
mod survey;
mod sync;
mod table;
mod walk;
mod worker_table;

pub use count::{Applied, IndexLimits, IndexStats, ObjectsApplied};
pub use expected::{Prediction, Sent};
pub use hash::SEQUENCE_HASH_SEED;
pub use holder::Holder;
pub use holdings::WorkerHoldings;
pub use prompt::{Prompt, PromptSpace};
pub use query::{RankMatch, WorkerMatch};
pub use shared::SharedPrefixIndex;
pub use snapshot::{
    CacheSnapshot, MOST_CHAIN_BLOCKS, MOST_SNAPSHOT_AMBIGUOUS, MOST_SNAPSHOT_GROUPS, SnapshotChain,
    SnapshotGroup, SnapshotHold,
};
pub use survey::{PrefixSurvey, SharedPrefix, SurveyLimits};
