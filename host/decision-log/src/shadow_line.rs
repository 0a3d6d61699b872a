//! The lines of a shadow log, one JSON object each: `{"shadow": {...}}`. `config/TRIALS.md` describes every field.

use serde::Serialize;

/// Line of a shadow log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShadowLogLine {
    /// A shadow's decision.
    Shadow(ShadowLine),
}

/// A shadow's decision about one request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ShadowLine {
    /// Time of the call in microseconds since 1970.
    pub unix_us: u64,
    /// Request id, truncated.
    pub request: String,
    /// Sequence number.
    pub seq: u64,
    /// Number of earlier decisions about the request.
    pub attempt: u32,
    /// The route's pool.
    pub pool: String,
    /// Matching rule of the route.
    pub route: String,
    /// Result, as counted by `conductor_shadow_decisions_total`.
    pub result: &'static str,
    /// Kind of fault, if the call failed.
    pub fault: Option<&'static str>,
    /// Active policy and its choice.
    pub active: ChoiceLine,
    /// Shadow policy and its choice.
    pub shadow: ChoiceLine,
    /// Duration of the shadow's calls in microseconds.
    pub took_us: f64,
}

/// A policy and its choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChoiceLine {
    /// Name in the configuration.
    pub policy: Option<String>,
    /// Id of its version. `None` if none was called.
    pub version: Option<String>,
    /// Chosen worker, or `None`.
    pub worker: Option<String>,
    /// Chosen prefill worker, if it is another one.
    pub prefill: Option<String>,
    /// Prompt tokens cached at the worker that computes the prompt, if known.
    pub matched_tokens: Option<u32>,
    /// Tokens that worker must compute before the first token, including the request's.
    pub tokens_ahead: Option<u64>,
    /// Time to first token in milliseconds predicted by the worker's cost model, if it predicts one.
    pub predicted_ttft_ms: Option<f64>,
    /// Requests in flight on that worker.
    pub requests: Option<u32>,
}
