//! HTTP in, HTTP out: the request path of the router.
//!
//! It knows workers by URL, policies as `dyn routing::Policy` and the index by its questions; it knows nothing
//! of configuration files, of event feeds, or of what a policy is made of. `pipeline.rs` is one request's walk
//! on one screen. See `host/adr/0006-request-path.md`.

mod admission;
mod arrival;
mod attempt;
mod bodies;
mod body;
mod buckets;
mod call_observer;
mod catalog;
mod cause;
mod clients;
mod cold;
mod connections;
mod context;
mod crashes;
mod decide;
mod decided_by;
mod events;
mod exchange;
mod expectation;
mod experiments;
mod feeds;
mod fleet_collector;
mod fleet_report;
mod headers;
mod health;
mod intake;
mod isolation;
mod keep_alive;
mod knowledge;
mod label;
mod link;
mod matches;
mod memory;
mod metrics;
mod models;
mod openapi;
mod own_pages;
#[cfg(test)]
mod parity_tests;
mod pd;
mod pipeline;
mod pipeline_parts;
mod proxy;
mod queries;
mod readiness;
mod realtime;
mod relay;
mod reply;
mod request_id;
mod request_trace;
mod responses;
mod retries;
mod route;
mod router_view;
mod server;
mod shadow;
mod silence;
mod snapshot;
mod tasks;
mod throttle;
mod timeouts;
mod tls;
mod tokens;

pub use admission::{AdmissionSpec, BudgetReport, BudgetSpec, Objectives};
pub use bodies::BodyTotals;
pub use catalog::{AdapterSpec, ModelListSpec, ModelsReport};
pub use clients::{ClientLimits, ClientSpec, EngineFields, KeyHash};
pub use cold::status_pages;
pub use decision_log as record;
pub use events::ListenerReport;
pub use expectation::{AssumedCache, Expectation};
pub use experiment::{
    ArmReport, ArmSummary, Finding, Look, Measure, Shortage, StopCause, StopReport, StopRule, TimesReport,
    TrialReport, Wanted,
};
pub use experiments::{CanarySpec, ShadowSpec, TrialSpec};
pub use feeds::LiveFeeds;
pub use fleet_report::{Health, HealthReason, PoolReport, WorkerReport};
pub use health::{HealthSpec, ProbeSpec, ScrapeSpec};
pub use knowledge::SpellReport;
pub use memory::{MemoryReport, MemoryStage};
pub use metrics::{Decisions, ProxyMetrics};
pub use pd::{DialectReport, PdSpec};
pub use pipeline_parts::PipelineWatch;
pub use proxy::{Proxy, ProxyParts};
pub use readiness::Readiness;
pub use retries::RetrySpec;
pub use route::RouteError;
pub use server::{
    CorsSpec, Door, DoorKey, DrainOutcome, EdgeLimits, EdgeSpec, Http2Limits, ListenersSpec, PagesListener,
    PagesSpec, ServeLimits, serve, serve_pages,
};
pub use shadow::{Disagreement, Pick, ShadowReport};
pub use snapshot::{PoolSpec, RouteSpec, Snapshot, SnapshotCell, SnapshotError, SnapshotPlan, SnapshotSpec};
pub use timeouts::{PoolTimeouts, RequestLimits};
pub use tls::{ServerTls, ServerTlsParts};
pub use tokens::{ModelSpec, ModelTokens, ModelsSpec, TokenSource, TokenizingLimits};
pub use worker_client::tls::{TlsError, WorkerTls, WorkerTlsParts};
pub use worker_client::{
    Authorization, ConnectionsSpec, UrlError, WorkerClient, WorkerClientError, WorkerReply,
};
