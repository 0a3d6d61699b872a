//! `conductor.toml` into a valid configuration, or every mistake in it at once.
//!
//! Pure: text in, values out. It opens no file, reads no environment and knows no clock; paths are handed on as
//! written. The syntax tree, the spans and the half-checked values never leave the crate: a [`Config`] is the
//! proof that the file is right.

mod address;
mod admission;
mod clients;
mod code;
mod config;
mod connections;
mod cors;
mod data_parallel;
mod diagnostic;
mod encoding;
mod endpoint;
mod examine;
mod exposure;
mod feeds;
mod forward;
mod health;
mod index;
mod indexer;
mod instance;
mod key;
mod kv_events;
mod limits;
mod log;
mod models;
mod name;
mod param;
mod pd;
mod pipeline;
mod policy;
mod policy_headers;
mod pool;
mod reach;
mod record;
mod render;
mod report;
mod retries;
mod route;
mod section;
mod server;
mod sha256;
mod source;
mod store;
mod suggest;
mod syntax;
mod tls;
mod totals;
mod trial;
mod unit;
mod value;
mod worker;
mod z85;

pub use admission::{AdmissionConfig, BudgetConfig, ObjectivesConfig};
pub use clients::{ClientConfig, EngineFields};
pub use code::{Code, Severity};
pub use config::{Config, Known, MAX_FILE_BYTES, Parsed, PolicyCache, PolicyFiles};
pub use connections::ConnectionsConfig;
pub use cors::CorsConfig;
pub use data_parallel::{DataParallel, rank_name};
pub use diagnostic::{Diagnostic, Diagnostics, Mark};
pub use encoding::decode;
pub use examine::{Doubt, Examined};
pub use feeds::{CurveConfig, KvEventsConfig, PoolEventsConfig};
pub use health::{HealthConfig, ModelListConfig, ScrapeConfig};
pub use index::{AssumeCacheConfig, IndexConfig};
pub use indexer::{
    ApiKey, DEFAULT_TENANT, IndexerConfig, ServiceConfig, ServiceHash, ServiceKind, check_endpoint,
};
pub use instance::{check_worker_name, worker_address};
pub use key::{AuthorizationConfig, KeyPlace, KeySource};
pub use kv_events::{KvEvents, KvFeedConfig};
pub use limits::LimitsConfig;
pub use log::{LogConfig, LogFormat, check_log_level};
pub use models::{ContentFormatConfig, LocalTokenizer, ModelConfig, ModelTokenize, Tokenize, TokensConfig};
pub use name::check_policy_name;
pub use pd::PdConfig;
pub use pipeline::PipelineConfig;
pub use policy::{ParamPlace, PolicyConfig, PolicyLimits, PolicySource, ignored_file_fix};
pub use pool::PoolConfig;
pub use record::RecordConfig;
pub use render::Paint;
pub use retries::{RetriesConfig, TimeoutsConfig};
pub use route::{RouteConfig, RouteMatch};
pub use server::ServerConfig;
pub use sha256::Sha256;
pub use source::Location;
pub use store::StoreConfig;
pub use tls::{PemFile, PoolTlsConfig, ServerTlsConfig};
pub use totals::TotalsConfig;
pub use trial::{CanaryConfig, ShareConfig, TrialConfig};
pub use worker::WorkerConfig;
pub use z85::key as z85_key;
