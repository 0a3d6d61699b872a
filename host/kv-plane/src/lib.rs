//! Knowledge of the workers' KV caches: event feeds, and the prefix index that they fill.
//!
//! [`KvPlane`] starts the index and its feeds. [`Discovery`] finds the feeds of the fleet's workers and keeps their
//! list. [`RegisteredFeeds`] adds those that clients of the indexer register. [`IndexMaintenance`] ages and reclaims
//! entries. [`IndexReporter`] reports on the index to operators. [`PeerFill`] takes over the contents of other routers
//! at a start. The request path learns through [`WorkerLiveness`] of which workers the index is current.

mod discovery;
mod feed_list;
mod index_fill;
mod index_maintenance;
mod index_report;
mod index_sink;
mod metrics;
mod peer_fill;
mod plane;
mod registered_feeds;

pub use discovery::{
    CheckedFeeds, Discovery, FeedPlan, PageTls, Publisher, RefusedSource, SourceAnswer, SourceClient,
    SourceError, StorePlan, StoreReport, Target, TargetReport, trusted_sources,
};
pub use index_fill::FillOutcome;
pub use index_maintenance::IndexMaintenance;
pub use index_report::{IndexReport, IndexReporter, IndexedWorker};
pub use index_sink::WorkerLiveness;
pub use peer_fill::{PeerFill, WantedContents};
pub use plane::KvPlane;
pub use registered_feeds::RegisteredFeeds;
