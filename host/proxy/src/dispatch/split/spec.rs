//! How the two legs of a disaggregated pool are run.

use std::sync::Arc;
use std::time::Duration;

use routing::Dialect;

use crate::dispatch::split::{Detection, DialectReport};
use crate::metrics::PdMetrics;

/// Of a pool whose requests may be split between a prefill and a decode worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdSpec {
    /// What its workers speak; none: it is detected.
    pub dialect: Option<Dialect>,
    /// Whether a decode worker may do the whole of a request: where a policy says so, and where no prefill worker can be had.
    pub alone: bool,
    /// For a connection to a worker.
    pub connect_timeout: Duration,
    /// From the dispatch of the prefill leg to the end of its answer.
    pub prefill_timeout: Duration,
    /// From the dispatch of the decode leg to the first byte of its answer's body.
    pub first_token_timeout: Duration,
    /// Longest silence in the middle of the decode leg's answer.
    pub idle_timeout: Duration,
}

/// The same in a snapshot.
#[derive(Debug)]
pub(crate) struct PdPool {
    pub(crate) spec: PdSpec,
    pub(crate) metrics: PdMetrics,
    /// Where the configuration names no dialect.
    pub(crate) detection: Option<Arc<Detection>>,
}

/// How one request is split, settled when it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handover {
    /// What its two workers speak.
    pub(crate) dialect: Dialect,
    /// Whether it is to show if they do: the dialect is unknown. Whatever comes of its prefill leg, the request is served.
    pub(crate) is_trial: bool,
}

impl PdPool {
    /// What its workers speak, as far as it is known.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let detected = || self.detection.as_ref()?.dialect();
        self.spec.dialect.or_else(detected)
    }

    /// How a request is split that comes now; none while nothing is known, which only the first requests wait for.
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

    /// How its dialect is known.
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
