//! Views of the admin pages, without HTTP and without a clock: values in, values out.
//!
//! [`RequestFilter`] selects recorded requests, and [`RequestTail`] follows them. [`RateMeter`] makes rates of
//! samples of the fleet, [`History`] keeps them, and [`FleetView`] is what a viewer sees of them. [`ChangeRing`] has
//! the latest changes of the router.

mod changes;
mod config_history;
#[cfg(test)]
mod fixtures;
mod fleet;
mod health;
mod history;
mod query;
mod rates;
mod requests;
mod tail;
mod topics;
mod trials;

pub use changes::{
    CHANGES_KEPT, Change, ChangeCause, ChangeKind, ChangeResult, ChangeRing, NewChange, changes_limit,
};
pub use config_history::{
    CONFIG_TEXTS, ConfigDiff, ConfigHistory, DiffError, GenerationRow, NewText, TextPair, redacted_diff,
    text_sha256,
};
pub use fleet::{CacheState, FeedView, FleetEvent, FleetView, PoolView, WorkerView};
pub use health::{HealthChange, HealthWatch};
pub use history::{HISTORY_SAMPLES, HISTORY_WORKERS, History, HistoryPage};
pub use query::QueryError;
pub use rates::{FleetRates, PoolRates, RateMeter, WorkerRates, worker_key};
pub use requests::{RequestFilter, RequestList};
pub use tail::{RequestTail, TAIL_REACH, TAIL_ROWS};
pub use topics::Topic;
pub use trials::{StoppedCanary, TrialWatch};
