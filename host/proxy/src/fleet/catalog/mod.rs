//! Model catalog: which workers of a pool serve which model or LoRA adapter, learned from each worker's `/v1/models`.
//!
//! `learned.rs` has the list of one worker. `pool.rs` has the table in which a pool's requests look their model up.
//! `served.rs` has an entry of it. `fetch.rs` fetches workers' lists beside the requests (`health/rounds.rs` schedules
//! it). `news.rs` fetches them again because of a request: for a name that no list has, and after a worker's 404.

mod fetch;
mod learned;
mod metrics;
mod news;
mod pool;
mod served;
mod spec;

pub(crate) use self::fetch::refresh;
pub(crate) use self::learned::LearnedModels;
pub use self::learned::ModelsReport;
pub(crate) use self::metrics::{CatalogFamilies, CatalogMetrics};
pub(crate) use self::news::{UnservedModel, after_not_found, look_up};
pub use self::pool::AdapterSpec;
pub(crate) use self::pool::ModelCatalog;
pub(crate) use self::served::{RequestModel, ServedModel};
pub use self::spec::ModelListSpec;
