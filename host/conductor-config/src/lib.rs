//! Configuration parser: `conductor.toml` to a valid configuration, or to all of its errors at once.
//!
//! Pure: text in, values out. It reads no file, environment or clock; paths are returned as written. Syntax tree,
//! spans and partly checked values stay inside the crate: a [`Config`] is always valid.

mod address;
mod changes;
mod clients;
mod config;
mod discovery;
mod document;
mod encoding;
mod engines;
mod feeds;
mod file;
mod folder;
mod index;
mod indexer;
mod key;
mod known;
mod log;
mod metrics;
mod models;
mod name;
mod policies;
mod pools;
mod record;
mod replicas;
mod routes;
mod server;
mod sha256;
mod tls;
mod traces;
mod unique;
mod z85;

pub use changes::{ConfigChanges, restart_keys};
pub use clients::{ClientConfig, EngineFields};
pub use config::{Config, Examined, MAX_FILE_BYTES, Parsed, PolicyCache};
pub use discovery::{
    DiscoveredDefaults, DiscoveryConfig, DiscoveryPlace, KubernetesConfig, KubernetesObjects,
};
pub use document::code::{Code, Severity};
pub use document::controls::spelt_out;
pub use document::diagnostic::{Diagnostic, Diagnostics};
pub use document::redact::redacted;
pub use document::render::Paint;
pub use document::source::{Location, Mark};
pub use encoding::decode;
pub use feeds::{CurveConfig, KvEventsConfig, PoolEventsConfig};
pub use file::NamedFile;
pub use index::{AssumeCacheConfig, IndexConfig};
pub use indexer::{
    ApiKey, DEFAULT_TENANT, IndexerConfig, MOST_MODEL_BYTES, ServiceConfig, ServiceHash, ServiceKind,
    check_endpoint,
};
pub use key::{AuthorizationConfig, KeyPlace, KeySource};
pub use known::{Known, PolicyFiles};
pub use log::{AccessOutput, LogConfig, LogFormat, check_log_level};
pub use metrics::{HISTOGRAMS, MetricsConfig};
pub use models::{
    ChatEngineConfig, ContentFormatConfig, LocalTokenizer, ModelConfig, ModelTokenize, Tokenize, TokensConfig,
};
pub use name::check_policy_name;
pub use policies::compile::PolicyCompileConfig;
pub use policies::ignored_file_fix;
pub use policies::model::{ParamPlace, PipelineConfig, PolicyConfig, PolicyLimits, PolicySource, UnreadPart};
pub use pools::PoolConfig;
pub use pools::admission::{AdmissionConfig, BudgetConfig, ObjectivesConfig};
pub use pools::connections::ConnectionsConfig;
pub use pools::data_parallel::{DataParallel, rank_name};
pub use pools::health::{HealthConfig, ModelListConfig, ScrapeConfig};
pub use pools::instance::{bootstrap_address, check_worker_name, worker_address};
pub use pools::kv_events::{KvEvents, KvFeedConfig};
pub use pools::pd::PdConfig;
pub use pools::retries::{RetriesConfig, TimeoutsConfig};
pub use pools::store::StoreConfig;
pub use pools::worker::WorkerConfig;
pub use record::RecordConfig;
pub use replicas::{ReplicaLogin, ReplicasConfig};
pub use routes::RouteConfig;
pub use routes::matching::RouteMatch;
pub use routes::trial::{CanaryConfig, ShareConfig, TrialConfig, share_parts};
pub use server::ServerConfig;
pub use server::cors::CorsConfig;
pub use server::http2::Http2Config;
pub use server::limits::LimitsConfig;
pub use server::totals::{MemoryLimitConfig, TotalsConfig};
pub use sha256::Sha256;
pub use tls::{PoolTlsConfig, ServerTlsConfig};
pub use traces::{ResourceAttribute, TraceHeader, TracesConfig};
pub use z85::key as z85_key;
