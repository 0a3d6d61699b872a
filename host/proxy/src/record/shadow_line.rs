//! The lines of a shadow log, one JSON object each: `{"shadow": {...}}`. `host/docs/policies/trials.md` describes every field.

use serde::Serialize;

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ShadowLogLine {
    /// What a shadow would have decided.
    Shadow(ShadowLine),
}

/// What a shadow would have decided of one request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ShadowLine {
    /// Microseconds since 1970, when it was asked.
    pub(crate) unix_us: u64,
    /// The request's id, cut.
    pub(crate) request: String,
    /// Its number.
    pub(crate) seq: u64,
    /// How often it had been decided before.
    pub(crate) attempt: u32,
    /// The route's pool.
    pub(crate) pool: String,
    /// What the route takes.
    pub(crate) route: String,
    /// What came of it, as `conductor_shadow_decisions_total` counts it.
    pub(crate) result: &'static str,
    /// How it failed, where it did.
    pub(crate) fault: Option<&'static str>,
    /// Who placed the request, and where.
    pub(crate) active: ChoiceLine,
    /// The shadow.
    pub(crate) shadow: ChoiceLine,
    /// Microseconds of the shadow's calls.
    pub(crate) took_us: f64,
}

/// Who chose, and whom.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ChoiceLine {
    /// Its name in the configuration.
    pub(crate) policy: Option<String>,
    /// The id of its version; none where none was asked.
    pub(crate) version: Option<String>,
    /// The worker that was to answer; none where none was chosen.
    pub(crate) worker: Option<String>,
    /// The one that was to compute the prompt, where another.
    pub(crate) prefill: Option<String>,
    /// Prompt tokens cached at the worker that was to compute the prompt; none where that is unknown.
    pub(crate) matched_tokens: Option<u32>,
    /// Tokens to be computed there before the first token, the request's included.
    pub(crate) tokens_ahead: Option<u64>,
    /// Milliseconds to the first token that the cost model of that worker predicts; none while it predicts nothing.
    pub(crate) predicted_ttft_ms: Option<f64>,
    /// Requests in flight there.
    pub(crate) requests: Option<u32>,
}
