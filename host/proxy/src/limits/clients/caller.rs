//! One client: who it is, what it may ask for, and what it has used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use http::HeaderMap;
use wildmatch::WildMatch;

use super::limits::{Bucket, Level, Rate};
use super::metrics::ClientMetrics;
use super::visit::RateLimitGuard;
use super::{ClientSpec, EngineFields, told};
use crate::base::reply::Limited;

/// A client that showed a key of the configuration.
#[derive(Debug)]
pub(crate) struct Principal {
    /// Its name in the configuration.
    pub(crate) name: Arc<str>,
    /// Whom its share of a pool is counted for; clients may share one.
    pub(crate) tenant: Arc<str>,
    /// The class of its requests unless they say so themselves; higher goes first.
    pub(crate) priority: i32,
    /// Its tenant's share beside others, above 0.
    pub(crate) weight: f64,
    models: Box<[WildMatch]>,
    pub(super) may_set: EngineFields,
    pub(super) requests: Option<Rate>,
    pub(super) tokens: Option<Rate>,
    concurrent: Option<u32>,
    epoch: Instant,
    pub(super) ledger: Arc<Ledger>,
}

/// What a client has used. It stays over reloads.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(super) requests: Bucket,
    pub(super) tokens: Bucket,
    running: AtomicU32,
    pub(super) metrics: ClientMetrics,
}

impl Ledger {
    pub(super) fn new(metrics: ClientMetrics) -> Self {
        Self {
            requests: Bucket::default(),
            tokens: Bucket::default(),
            running: AtomicU32::new(0),
            metrics,
        }
    }

    /// A request more, unless there are `most`.
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

    /// One of those that began is over.
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

    /// Whether that model exists for it.
    pub(crate) fn may_ask_for(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }

    /// Whether every model exists for it.
    pub(super) fn may_ask_for_all(&self) -> bool {
        self.models.is_empty()
    }

    /// Whether its tokens are limited, and so answers to be read.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Lets a request in, if its client has not as many or has not sent as many as it may.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<RateLimitGuard, Limited> {
        let metrics = &self.ledger.metrics;
        if !self.ledger.begin(self.concurrent.unwrap_or(u32::MAX)) {
            metrics.refused.concurrent.inc();
            return Err(Limited::Concurrent {
                most: self.concurrent.unwrap_or(u32::MAX),
            });
        }
        let mut visit = RateLimitGuard::new(Arc::clone(self));
        if let Some(rate) = self.requests {
            let place = self.ledger.requests.take(rate, 1, self.now()).map_err(|wait| {
                metrics.refused.requests.inc();
                Limited::Requests {
                    limit: rate.per_minute(),
                    wait,
                }
            })?;
            visit.took_place(place);
        }
        metrics.requests.inc();
        Ok(visit)
    }

    /// Tells the client what it has left.
    pub(crate) fn tell_limits(&self, headers: &mut HeaderMap) {
        let now = self.now();
        let level = |rate: Option<Rate>, bucket: &Bucket| -> Option<(u32, Level)> {
            rate.map(|rate| (rate.per_minute(), bucket.level(rate, now)))
        };
        if let Some((limit, level)) = level(self.requests, &self.ledger.requests) {
            told::tell(&told::REQUESTS, headers, limit, level);
        }
        if let Some((limit, level)) = level(self.tokens, &self.ledger.tokens) {
            told::tell(&told::TOKENS, headers, limit, level);
        }
    }

    /// On the clock of the limits, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
