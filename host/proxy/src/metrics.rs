//! Metrics of the request path: every metric is declared in this file and nowhere else.
//!
//! Handles are resolved when a snapshot is built, so that a request only adds to atomics. Values of the running state
//! (loads, queues, connections) are read when Prometheus scrapes. Reading them costs a request nothing.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use routing::PipelineSpec;

use crate::base::buckets::{prompt_lengths, request_times};
use crate::base::label::{FAILURES, OUTCOMES, Outcome};
use crate::dispatch::shadow::ShadowFamilies;
use crate::edge::EdgeMetrics;
use crate::fleet::catalog::CatalogFamilies;
use crate::fleet::health::{HealthFamilies, RetryMetrics};
use crate::fleet::worker::WorkerMetrics;
use crate::limits::admission::{AdmissionFamilies, AdmissionMetrics};
use crate::limits::clients::ClientFamilies;
use crate::observe::events::EventFamilies;
use crate::observe::experiments::ArmFamilies;
use crate::observe::pipeline_parts::{PipelineFamilies, PipelineWatch};
use crate::observe::policies::{Decisions, PolicyFamilies, PolicyMetrics};
use crate::request::responses::ResponseMetrics;
use crate::tokens::{PromptMetrics, TokensMetrics};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolOutcomeLabel {
    pool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolShapeLabel {
    pool: String,
    shape: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerKindLabel {
    worker: String,
    kind: &'static str,
}

type Times<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of the request path. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub struct ProxyMetrics {
    pub(crate) client_connections: Gauge,
    pub(crate) client_connections_limit: Gauge,
    requests: Family<PoolOutcomeLabel, Counter>,
    attempts: Family<WorkerLabel, Counter>,
    failures: Family<WorkerKindLabel, Counter>,
    first_token: Times<PoolLabel>,
    duration: Times<PoolLabel>,
    queue_wait: Times<PoolLabel>,
    prompt_tokens: Family<PoolLabel, Counter>,
    matched_tokens: Family<PoolLabel, Counter>,
    matched_lengths: Times<PoolLabel>,
    index_queries: Family<PoolLabel, Counter>,
    cached_tokens: Family<PoolLabel, Counter>,
    placements: Family<PoolShapeLabel, Counter>,
    handover_failures: Family<PoolLabel, Counter>,
    prefill_time: Times<PoolLabel>,
    pub(crate) arms: ArmFamilies,
    pub(crate) shadows: ShadowFamilies,
    policies: PolicyFamilies,
    pub(crate) pipelines: PipelineFamilies,
    pub(crate) events: EventFamilies,
    pub(crate) edge: EdgeMetrics,
    health: HealthFamilies,
    catalog: CatalogFamilies,
    pub(crate) clients: ClientFamilies,
    pub(crate) admission: AdmissionFamilies,
    pub(crate) tokens: TokensMetrics,
    pub(crate) responses: ResponseMetrics,
}

impl ProxyMetrics {
    /// Registers every metric, with names that begin with `conductor_`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            client_connections: Gauge::default(),
            client_connections_limit: Gauge::default(),
            requests: Family::default(),
            attempts: Family::default(),
            failures: Family::default(),
            first_token: Family::new_with_constructor(request_times),
            duration: Family::new_with_constructor(request_times),
            queue_wait: Family::new_with_constructor(request_times),
            prompt_tokens: Family::default(),
            matched_tokens: Family::default(),
            matched_lengths: Family::new_with_constructor(prompt_lengths),
            index_queries: Family::default(),
            cached_tokens: Family::default(),
            placements: Family::default(),
            handover_failures: Family::default(),
            prefill_time: Family::new_with_constructor(request_times),
            arms: ArmFamilies::default(),
            shadows: ShadowFamilies::default(),
            policies: PolicyFamilies::default(),
            pipelines: PipelineFamilies::default(),
            events: EventFamilies::default(),
            edge: EdgeMetrics::default(),
            health: HealthFamilies::default(),
            catalog: CatalogFamilies::default(),
            clients: ClientFamilies::default(),
            admission: AdmissionFamilies::default(),
            tokens: TokensMetrics::default(),
            responses: ResponseMetrics::default(),
        };
        metrics.register(registry.sub_registry_with_prefix("conductor"));
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        self.register_pd(registry);
        self.policies.register(registry);
        self.arms.register(registry);
        self.shadows.register(registry);
        self.pipelines.register(registry);
        self.events.register(registry);
        self.edge.register(registry);
        self.health.register(registry);
        self.catalog.register(registry);
        self.clients.register(registry);
        self.admission.register(registry);
        self.tokens.register(registry);
        self.responses.register(registry);
        let r = registry;
        r.register(
            "client_connections",
            "Open connections of clients",
            self.client_connections.clone(),
        );
        r.register(
            "client_connections_limit",
            "Limit of client connections; further ones wait",
            self.client_connections_limit.clone(),
        );
        r.register(
            "requests",
            "Inference requests by outcome; pool is empty if no route matched",
            self.requests.clone(),
        );
        r.register(
            "worker_attempts",
            "Attempts of requests, by worker",
            self.attempts.clone(),
        );
        r.register(
            "worker_failures",
            "Failed attempts, and answers with a status of 500 or more",
            self.failures.clone(),
        );
        r.register(
            "time_to_first_token_seconds",
            "From the request's head to the first byte of a streamed answer",
            self.first_token.clone(),
        );
        r.register(
            "request_duration_seconds",
            "From the request's head to the end of its answer",
            self.duration.clone(),
        );
        r.register(
            "queue_wait_seconds",
            "Queue wait of held requests",
            self.queue_wait.clone(),
        );
        r.register(
            "prompt_tokens",
            "Prompt tokens of routed requests with known tokens",
            self.prompt_tokens.clone(),
        );
        r.register(
            "matched_tokens",
            "Of those, tokens cached at the chosen worker according to the index",
            self.matched_tokens.clone(),
        );
        r.register(
            "matched_prompt_tokens",
            "Cached prompt tokens at the chosen worker according to the index, per request",
            self.matched_lengths.clone(),
        );
        r.register(
            "index_queries",
            "Queries of the prefix index, one for all candidates of a decision",
            self.index_queries.clone(),
        );
        r.register(
            "cached_tokens",
            "Cached prompt tokens in the usage of workers' answers",
            self.cached_tokens.clone(),
        );
    }

    fn register_pd(&self, r: &mut Registry) {
        r.register(
            "pd_placements",
            "Attempts in a disaggregated pool by shape: a pair, one worker, or another decode worker for a computed prompt",
            self.placements.clone(),
        );
        r.register(
            "pd_handover_failures",
            "Prefill answers without handshake parameters: the decode worker computed the prompt",
            self.handover_failures.clone(),
        );
        r.register(
            "pd_unhanded",
            "Deprecated: use conductor_pd_handover_failures_total",
            self.handover_failures.clone(),
        );
        r.register(
            "pd_prefill_seconds",
            "From the dispatch of a prefill leg to the end of its answer",
            self.prefill_time.clone(),
        );
    }

    pub(crate) fn pool(&self, name: &str) -> PoolMetrics {
        let pool = || PoolLabel {
            pool: name.to_owned(),
        };
        let with = |outcome| PoolOutcomeLabel {
            pool: name.to_owned(),
            outcome,
        };
        PoolMetrics {
            requests: OUTCOMES.map(|(_, label)| self.requests.get_or_create_owned(&with(label))),
            first_token: self.first_token.get_or_create_owned(&pool()),
            duration: self.duration.get_or_create_owned(&pool()),
            prompt_tokens: self.prompt_tokens.get_or_create_owned(&pool()),
            matched_tokens: self.matched_tokens.get_or_create_owned(&pool()),
            matched_lengths: self.matched_lengths.get_or_create_owned(&pool()),
            index_queries: self.index_queries.get_or_create_owned(&pool()),
            cached_tokens: self.cached_tokens.get_or_create_owned(&pool()),
            retries: self.health.pool(name),
            prompts: self.tokens.pool(name),
        }
    }

    /// Returns the metrics of a pool's budget and queue.
    pub(crate) fn gate(&self, pool: &str) -> AdmissionMetrics {
        let name = pool.to_owned();
        let waited = self.queue_wait.get_or_create_owned(&PoolLabel { pool: name });
        self.admission.pool(pool, waited)
    }

    pub(crate) fn pd(&self, pool: &str) -> PdMetrics {
        let shape = |shape| PoolShapeLabel {
            pool: pool.to_owned(),
            shape,
        };
        let pool = PoolLabel {
            pool: pool.to_owned(),
        };
        PdMetrics {
            pairs: self.placements.get_or_create_owned(&shape("pair")),
            whole: self.placements.get_or_create_owned(&shape("whole")),
            handed_again: self.placements.get_or_create_owned(&shape("decode-again")),
            handover_failures: self.handover_failures.get_or_create_owned(&pool),
            prefill_time: self.prefill_time.get_or_create_owned(&pool),
        }
    }

    pub(crate) fn worker(&self, name: &str) -> WorkerMetrics {
        let worker = WorkerLabel {
            worker: name.to_owned(),
        };
        let with = |kind| WorkerKindLabel {
            worker: name.to_owned(),
            kind,
        };
        WorkerMetrics {
            attempts: self.attempts.get_or_create_owned(&worker),
            failures: FAILURES.map(|(_, label)| self.failures.get_or_create_owned(&with(label))),
            health: self.health.worker(name),
            catalog: self.catalog.worker(name),
        }
    }

    /// Returns the counters of a policy's answers.
    #[must_use]
    pub fn decisions_of(&self, policy: &str) -> Decisions {
        self.policies.decisions(policy)
    }

    pub(crate) fn policy(&self, name: &str) -> PolicyMetrics {
        self.policies.policy(name)
    }

    /// Returns an observer of the parts of a pipeline; `scorer` returns the name under which a policy among them is
    /// kept.
    #[must_use]
    pub fn watch_pipeline(
        &self,
        name: &str,
        spec: &PipelineSpec,
        scorer: impl Fn(&str) -> String,
    ) -> Arc<PipelineWatch> {
        let policies = self.policies.clone();
        Arc::new(self.pipelines.watch(policies, name, spec, scorer))
    }

    /// Counts a request that no route matched.
    pub(crate) fn unrouted(&self, outcome: Outcome) {
        let label = PoolOutcomeLabel {
            pool: String::new(),
            outcome: OUTCOMES[outcome as usize].1,
        };
        self.requests.get_or_create(&label).inc();
    }

    /// Removes the metrics of a worker that is gone for good.
    pub(crate) fn forget_worker(&self, name: &str) {
        self.health.forget_worker(name);
        self.catalog.forget_worker(name);
        self.attempts.remove(&WorkerLabel {
            worker: name.to_owned(),
        });
        for (_, kind) in FAILURES {
            self.failures.remove(&WorkerKindLabel {
                worker: name.to_owned(),
                kind,
            });
        }
    }
}

/// Metric handles of one pool.
#[derive(Debug)]
pub(crate) struct PoolMetrics {
    requests: [Counter; OUTCOMES.len()],
    pub(crate) first_token: Histogram,
    pub(crate) duration: Histogram,
    pub(crate) prompt_tokens: Counter,
    pub(crate) matched_tokens: Counter,
    pub(crate) matched_lengths: Histogram,
    pub(crate) index_queries: Counter,
    pub(crate) cached_tokens: Counter,
    pub(crate) retries: RetryMetrics,
    pub(crate) prompts: PromptMetrics,
}

impl PoolMetrics {
    pub(crate) fn ended(&self, outcome: Outcome) {
        self.requests[outcome as usize].inc();
    }
}

/// Metric handles of one pool's pairs.
#[derive(Debug)]
pub(crate) struct PdMetrics {
    pub(crate) pairs: Counter,
    pub(crate) whole: Counter,
    pub(crate) handed_again: Counter,
    pub(crate) handover_failures: Counter,
    pub(crate) prefill_time: Histogram,
}
