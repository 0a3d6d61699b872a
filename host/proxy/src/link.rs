//! What lives as long as a worker does, over all snapshots: its connections, and what is known of its health.

use std::time::{Duration, Instant};

use http::HeaderValue;
use routing::Worker;

use crate::cooldown::{Cooldown, Dispatch};
use crate::metrics::{ProxyMetrics, WorkerMetrics};
use crate::throttle::Throttle;
use crate::upstream::{Upstream, UrlError};

/// The way to one worker.
#[derive(Debug)]
pub(crate) struct WorkerLink {
    pub(crate) upstream: Upstream,
    /// Of the worker as a whole.
    pub(crate) cooldown: Cooldown,
    /// Of its `/tokenize`, which it may lack, or which may be slow while the rest is well.
    pub(crate) tokenizer: Cooldown,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) failure_log: Throttle,
    /// Value of `x-conductor-worker`.
    pub(crate) label: HeaderValue,
    since: Instant,
}

impl WorkerLink {
    pub(crate) fn new(worker: &Worker, metrics: &ProxyMetrics) -> Result<Self, UrlError> {
        let name = &worker.spec().name;
        Ok(Self {
            upstream: Upstream::new(&worker.spec().url)?,
            cooldown: Cooldown::default(),
            tokenizer: Cooldown::default(),
            metrics: metrics.worker(name),
            failure_log: Throttle::default(),
            // A name that is no header value is not shown.
            label: HeaderValue::from_str(name).unwrap_or(HeaderValue::from_static("")),
            since: Instant::now(),
        })
    }

    /// How long the worker has been known.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.since)
    }

    /// Milliseconds on the clock of its cooldowns.
    pub(crate) fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
    }

    /// Whether to keep away; reads the clock only after a failure.
    pub(crate) fn is_resting(&self) -> bool {
        self.rests(&self.cooldown)
    }

    /// Whether to keep away from its tokeniser.
    pub(crate) fn tokenizer_is_resting(&self) -> bool {
        self.rests(&self.tokenizer)
    }

    /// A request is about to be sent; as [`Cooldown::begin`].
    pub(crate) fn begin(&self) -> Dispatch {
        self.begin_on(&self.cooldown)
    }

    /// Its tokeniser is about to be asked; as [`Cooldown::begin`].
    pub(crate) fn begin_tokenizing(&self) -> Dispatch {
        self.begin_on(&self.tokenizer)
    }

    fn rests(&self, cooldown: &Cooldown) -> bool {
        cooldown.has_failed() && cooldown.is_resting(self.now_ms())
    }

    fn begin_on(&self, cooldown: &Cooldown) -> Dispatch {
        if cooldown.has_failed() {
            cooldown.begin(self.now_ms())
        } else {
            Dispatch::Plain
        }
    }
}
