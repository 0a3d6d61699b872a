//! Model catalog: which workers of a pool serve which model or LoRA adapter, learned from each worker's `/v1/models`.
//!
//! `learned.rs` is what one worker lists, `pool.rs` the table that a pool's requests look their model up in, `served.rs` an
//! entry of it. `fetch.rs` asks workers for their lists beside the requests (`health/rounds.rs` decides when); `news.rs` asks
//! again because of a request: for a name that no list has, and after a worker's 404.

mod fetch;
mod learned;
mod metrics;
mod news;
mod pool;
mod served;

pub use self::fetch::ModelListSpec;
pub(crate) use self::fetch::refresh;
pub(crate) use self::learned::LearnedModels;
pub use self::learned::ModelsReport;
pub(crate) use self::metrics::{CatalogFamilies, CatalogMetrics};
pub(crate) use self::news::{after_not_found, look_up};
pub use self::pool::AdapterSpec;
pub(crate) use self::pool::ModelCatalog;
pub(crate) use self::served::{RequestModel, ServedModel};
