//! Specification of a disaggregated pool: how its two legs are run.

use std::sync::Arc;
use std::time::Duration;

use routing::Dialect;

use crate::dispatch::metrics::PdMetrics;
use crate::dispatch::split::{Detection, DialectReport};

/// Settings of a pool whose requests may be split between a prefill and a decode worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdSpec {
    /// Dialect of the pool's workers. `None`: it is detected.
    pub dialect: Option<Dialect>,
    /// Set if a decode worker may run the whole of a request: where a policy decides so, and where no prefill worker is
    /// available.
    pub alone: bool,
    /// Timeout for a connection to a worker.
    pub connect_timeout: Duration,
    /// Timeout from the dispatch of the prefill leg to the end of its answer.
    pub prefill_timeout: Duration,
    /// Timeout from the dispatch of the decode leg to the first byte of its answer's body.
    pub first_token_timeout: Duration,
    /// Longest silence in the middle of the decode leg's answer.
    pub idle_timeout: Duration,
}

/// Prefill-decode state of a pool in a snapshot.
#[derive(Debug)]
pub(crate) struct PdPool {
    pub(crate) spec: PdSpec,
    pub(crate) metrics: PdMetrics,
    /// Dialect detection, where the configuration names no dialect.
    pub(crate) detection: Option<Arc<Detection>>,
}

/// Hand-over settings of one request, fixed when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handover {
    /// Dialect of the two workers.
    pub(crate) dialect: Dialect,
    /// Set if the leg is a trial of the dialect, because the dialect is unknown. The request is served whatever its
    /// prefill leg returns.
    pub(crate) is_trial: bool,
}

impl PdPool {
    /// Returns the dialect of the pool's workers, as far as it is known.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let detected = || self.detection.as_ref()?.dialect();
        self.spec.dialect.or_else(detected)
    }

    /// Returns whether a decode worker can answer a request without a prefill worker.
    pub(crate) fn decodes_alone(&self) -> bool {
        self.spec.alone && self.dialect().is_none_or(Dialect::decodes_alone)
    }

    /// Returns the hand-over settings of a new request. `None` while nothing is known. Only the first requests wait for
    /// that.
    pub(crate) async fn handover(&self) -> Option<Handover> {
        let known = |dialect| Handover {
            dialect,
            is_trial: false,
        };
        if let Some(dialect) = self.spec.dialect {
            return Some(known(dialect));
        }
        let detection = self.detection.as_ref()?;
        if let Some(dialect) = detection.wait().await {
            return Some(known(dialect));
        }
        let trial = Handover {
            dialect: Dialect::Nixl,
            is_trial: true,
        };
        detection.may_try().then_some(trial)
    }

    /// Returns the source of the dialect.
    pub(crate) fn dialect_report(&self) -> DialectReport {
        match &self.detection {
            Some(detection) => detection.report(),
            None => DialectReport {
                state: "configured",
                reason: None,
            },
        }
    }
}
