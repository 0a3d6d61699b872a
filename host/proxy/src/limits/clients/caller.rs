//! Authenticated API client: its identity, allowed models, and usage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use http::HeaderMap;
use wildmatch::WildMatch;

use super::limits::{Level, Rate, RateBucket};
use super::metrics::ClientMetrics;
use super::reservation::RateLimitGuard;
use super::{ClientSpec, EngineFields, ratelimit_headers};
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
    pub(super) requests: Option<Rate>,
    pub(super) tokens: Option<Rate>,
    concurrent: Option<u32>,
    epoch: Instant,
    pub(super) ledger: Arc<Ledger>,
}

/// Usage counters of a client. They are kept over reloads.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) requests: RateBucket,
    pub(super) tokens: RateBucket,
    running: AtomicU32,
    pub(super) metrics: ClientMetrics,
}

impl Ledger {
    pub(super) fn new(metrics: ClientMetrics) -> Self {
        Self {
            requests: RateBucket::default(),
            tokens: RateBucket::default(),
            running: AtomicU32::new(0),
            metrics,
        }
    }

    /// Counts a request. Returns `false` if `most` are in progress.
    fn begin(&self, most: u32) -> bool {
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

    /// Ends a counted request.
    pub(super) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.metrics.running.dec();
    }
}

impl Principal {
    pub(super) fn new(spec: ClientSpec, epoch: Instant, ledger: Arc<Ledger>) -> Self {
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
            epoch,
            ledger,
        }
    }

    pub(super) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Returns `true` if the client may use the model.
    pub(crate) fn may_ask_for(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }

    /// Returns `true` if the client may use every model.
    pub(super) fn may_ask_for_all(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns `true` if the client has a token limit, so that responses must be parsed.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Admits a request, unless its client has reached its limit of concurrent requests or its rate limit.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<RateLimitGuard, Limited> {
        let metrics = &self.ledger.metrics;
        if !self.ledger.begin(self.concurrent.unwrap_or(u32::MAX)) {
            metrics.refused.concurrent.inc();
            return Err(Limited::Concurrent {
                most: self.concurrent.unwrap_or(u32::MAX),
            });
        }
        let mut reservation = RateLimitGuard::new(Arc::clone(self));
        if let Some(rate) = self.requests {
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
        if let Some((limit, level)) = level(self.requests, &self.ledger.requests) {
            ratelimit_headers::set(&ratelimit_headers::REQUESTS, headers, limit, level);
        }
        if let Some((limit, level)) = level(self.tokens, &self.ledger.tokens) {
            ratelimit_headers::set(&ratelimit_headers::TOKENS, headers, limit, level);
        }
    }

    /// Returns the time on the clock of the limits, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
