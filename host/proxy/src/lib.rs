//! HTTP in, HTTP out: the request path of the router.
//!
//! Folders, from the edge inwards. Each imports only folders below it, which a test of `tests/tidy` checks:
//!
//! - `edge`: listeners, TLS, connection slots, limits on heads, control endpoints, drain.
//! - `request`: handling of one request, from its head to the end of its response; the snapshot it uses.
//! - `dispatch`: decision, attempts, requests split over two workers, and shadow policies.
//! - `tokens`: tokens of prompts.
//! - `limits`: admission, clients' rate limits, retry budgets, memory of bodies, settings of the edge.
//! - `observe`: access records, traces, stage times, events for policies, experiments.
//! - `fleet`: health, models and connections of the workers.
//! - `base`: leaves that every folder can use, such as refusals, labels and headers.
//!
//! `request/handle.rs` has the steps of one request. The crate has workers by URL, policies as `dyn routing::Policy`,
//! and the index by its queries. It has no configuration files, no event feeds and no policy
//! runtime. See `host/adr/0006-request-path.md`.

mod base;
mod dispatch;
mod edge;
mod fleet;
mod limits;
mod observe;
#[cfg(test)]
mod parity_tests;
mod proxy;
mod request;
mod tasks;
mod tokens;

pub use base::buckets::BucketBounds;
pub use base::label::outcome_labels;
pub use base::readiness::Readiness;
pub use base::timeouts::{PoolTimeouts, RequestLimits};
pub use base::tls::{ServerTls, ServerTlsParts};
pub use decision_log as record;
pub use dispatch::expectation::{AssumedCache, Expectation};
pub use dispatch::shadow::{Disagreement, Pick, ShadowReport};
pub use dispatch::split::{DialectReport, PdSpec};
pub use edge::control_routes::status_pages;
pub use edge::{
    DrainOutcome, ListenerHandle, LongResponse, PagesSpec, RebindableListener, ServeLimits, serve,
    serve_pages,
};
pub use experiment::{
    ArmReport, ArmSummary, CanaryVerdict, EvidenceTotals, Look, Measure, Shortage, StopCause, StopReport,
    StopRule, TimesReport, TrialReport, Wanted,
};
pub use fleet::catalog::{AdapterSpec, ModelListSpec, ModelsReport};
pub use fleet::failure_streak::StreakReport;
pub use fleet::feeds::LiveFeeds;
pub use fleet::health::{HealthSpec, ProbeSpec, ScrapeSpec};
pub use limits::admission::{AdmissionSpec, BudgetReport, BudgetSpec, Objectives};
pub use limits::bodies::BodyTotals;
pub use limits::clients::{
    BucketUse, ClientLimit, ClientLimits, ClientShare, ClientSpec, DebtExcess, EngineFields, KeyHash,
};
pub use limits::edge_settings::{CorsSpec, EdgeLimits, EdgeSpec, Http2Limits, ListenersSpec, PagesListener};
pub use limits::memory::{MemoryReport, MemoryStage};
pub use limits::retries::RetrySpec;
pub use observe::events::ListenerReport;
pub use observe::experiments::{CanarySpec, ShadowSpec, SharedArm, TrialShare, TrialSpec};
pub use observe::pipeline_parts::PipelineWatch;
pub use observe::policies::Decisions;
pub use observe::spans::TracingSpec;
pub use proxy::{Proxy, ProxyParts};
pub use request::fleet_report::{Health, HealthReason, PoolReport, WorkerReport};
pub use request::fleet_sample::{PoolSample, PoolTotals, TimeTotal, WorkerSample};
pub use request::lookup::{HeldPrefix, LookupError, PrefixLookup, PrefixQuery, PromptForm};
pub use request::metrics::ProxyMetrics;
pub use request::place::{
    AnswerFailure, AnswerHandle, AnswerStart, AttemptTimeouts, HeaderChanges, Place, Placed, PlacedHandle,
    PlacedWorker, SendFailure,
};
pub use request::pool_share::PoolShare;
pub use request::route::RouteError;
pub use request::snapshot::{
    PoolReuse, PoolSpec, RouteSpec, Snapshot, SnapshotCell, SnapshotError, SnapshotPlan, SnapshotSpec,
};
pub use tokens::{ModelSpec, ModelTokens, ModelsSpec, TokenSource, TokenizingLimits};
pub use worker_client::tls::{TlsError, WorkerTls, WorkerTlsParts};
pub use worker_client::{
    Authorization, ConnectionsSpec, UrlError, WorkerClient, WorkerClientError, WorkerReply,
};
