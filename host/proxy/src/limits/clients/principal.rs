//! Authenticated API client: its identity, allowed models, and usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::HeaderMap;
use wildmatch::WildMatch;

use super::limit_clock::LimitClock;
use super::limits::{ClientLimit, Level, Rate, RateBucket};
use super::metrics::ClientMetrics;
use super::ratelimit_headers;
use super::reservation::RateLimitGuard;
use super::spec::{ClientSpec, EngineFields};
use crate::base::life::next_life;
use crate::base::reply::Limited;

/// Client that sent a configured key.
#[derive(Debug)]
pub(crate) struct Principal {
    /// Name in the configuration.
    pub(crate) name: Arc<str>,
    /// Tenant for fair sharing of a pool; clients may share one.
    pub(crate) tenant: Arc<str>,
    /// Default class of its requests; higher classes are served first.
    pub(crate) priority: i32,
    /// Weight of its tenant's share, above 0.
    pub(crate) weight: f64,
    models: Box<[WildMatch]>,
    pub(super) may_set: EngineFields,
    requests: Option<Rate>,
    tokens: Option<Rate>,
    concurrent: Option<u32>,
    clock: LimitClock,
    pub(super) ledger: Arc<Ledger>,
}

/// Usage counters of a client. They are kept over reloads.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) requests: RateBucket,
    pub(super) tokens: RateBucket,
    running: AtomicU32,
    /// Concurrent requests at other routers.
    elsewhere: AtomicU32,
    /// Number of its beginning: a client that was removed and added again begins at 0.
    pub(super) life: u64,
    pub(super) metrics: ClientMetrics,
}

impl Ledger {
    pub(super) fn new(metrics: ClientMetrics) -> Self {
        Self {
            requests: RateBucket::default(),
            tokens: RateBucket::default(),
            running: AtomicU32::new(0),
            elsewhere: AtomicU32::new(0),
            life: next_life(),
            metrics,
        }
    }

    /// Counts a request. Returns `false` if `most` are in progress, at all routers.
    fn begin(&self, most: u32) -> bool {
        let most = most.saturating_sub(self.elsewhere.load(Ordering::Relaxed));
        let begun = self
            .running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |running| {
                (running < most).then(|| running + 1)
            });
        if begun.is_ok() {
            self.metrics.running.inc();
        }
        begun.is_ok()
    }

    /// Returns the number of its requests in progress.
    pub(super) fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Replaces the number of requests in progress at other routers.
    pub(super) fn set_elsewhere(&self, requests: u32) {
        self.elsewhere.store(requests, Ordering::Relaxed);
    }

    /// Ends a counted request.
    pub(super) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.running.dec();
    }
}

impl Principal {
    pub(super) fn new(spec: ClientSpec, clock: LimitClock, ledger: Arc<Ledger>) -> Self {
        let ClientSpec {
            name,
            keys: _,
            models,
            tenant,
            priority,
            weight,
            may_set,
            limits,
        } = spec;
        Self {
            name,
            tenant,
            priority,
            weight,
            models: models.iter().map(|glob| WildMatch::new(glob)).collect(),
            may_set,
            requests: limits.requests.map(Rate),
            tokens: limits.tokens.map(Rate),
            concurrent: limits.concurrent.map(std::num::NonZeroU32::get),
            clock,
            ledger,
        }
    }

    pub(super) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Returns `true` if the client has a limit of concurrent requests.
    pub(super) fn limits_concurrent(&self) -> bool {
        self.concurrent.is_some()
    }

    /// Returns the bucket of a limit.
    pub(super) fn bucket(&self, limit: ClientLimit) -> &RateBucket {
        match limit {
            ClientLimit::Requests => &self.ledger.requests,
            ClientLimit::Tokens => &self.ledger.tokens,
        }
    }

    /// Returns `true` if the client may use the model.
    pub(crate) fn may_use(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }

    /// Returns `true` if the client may use every model.
    pub(super) fn may_use_all(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns `true` if the client has a token limit, so that responses must be parsed.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the limit of requests per minute. A router that has lost the others enforces its share of it.
    pub(super) fn requests(&self) -> Option<Rate> {
        self.requests.map(|rate| rate.shared_by(self.clock.routers()))
    }

    /// Returns the limit of tokens per minute, or the router's share of it.
    pub(super) fn tokens(&self) -> Option<Rate> {
        self.tokens.map(|rate| rate.shared_by(self.clock.routers()))
    }

    /// Returns the limit of concurrent requests, or the router's share of it.
    fn concurrent(&self) -> Option<u32> {
        let share = |most: u32| (most / self.clock.routers()).max(1);
        self.concurrent.map(share)
    }

    /// Admits a request, unless its client has reached its limit of concurrent requests or its rate limit.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<RateLimitGuard, Limited> {
        let metrics = &self.ledger.metrics;
        let most = self.concurrent().unwrap_or(u32::MAX);
        if !self.ledger.begin(most) {
            metrics.refused.concurrent.inc();
            return Err(Limited::Concurrent { most });
        }
        let mut reservation = RateLimitGuard::new(Arc::clone(self));
        if let Some(rate) = self.requests() {
            let place = self.ledger.requests.take(rate, 1, self.now()).map_err(|wait| {
                metrics.refused.requests.inc();
                Limited::Requests {
                    limit: rate.per_minute(),
                    wait,
                }
            })?;
            reservation.took_request(place);
        }
        metrics.requests.inc();
        Ok(reservation)
    }

    /// Sets the `x-ratelimit-*` headers of a response.
    pub(crate) fn set_ratelimit_headers(&self, headers: &mut HeaderMap) {
        let now = self.now();
        let level = |rate: Option<Rate>, bucket: &RateBucket| -> Option<(u32, Level)> {
            rate.map(|rate| (rate.per_minute(), bucket.level(rate, now)))
        };
        if let Some((limit, level)) = level(self.requests(), &self.ledger.requests) {
            ratelimit_headers::set(&ratelimit_headers::REQUESTS, headers, limit, level);
        }
        if let Some((limit, level)) = level(self.tokens(), &self.ledger.tokens) {
            ratelimit_headers::set(&ratelimit_headers::TOKENS, headers, limit, level);
        }
    }

    /// Returns the time on the clock of the limits, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }
}
