//! Summary of a recorded request: one row of a list of requests.

use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::trace::{Progress, Trace};

/// Summary of a request. Unknown values are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestSummary {
    /// The request as it came.
    #[serde(flatten)]
    pub request: SummarizedRequest,
    /// Decisions on it.
    #[serde(flatten)]
    pub decision: SummarizedDecision,
    /// Its answer so far, and its end.
    #[serde(flatten)]
    pub end: SummarizedEnd,
    /// Tokens of prompt and answer.
    #[serde(flatten)]
    pub tokens: SummarizedTokens,
}

/// Facts of a request as it came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummarizedRequest {
    /// Request id.
    pub id: String,
    /// Sequence number.
    pub seq: u64,
    /// Arrival in seconds since 1970.
    pub at: f64,
    /// Model.
    pub model: String,
    /// Pool.
    pub pool: String,
    /// Route, counted from 1.
    pub route: usize,
    /// Path of the endpoint.
    pub path: String,
}

/// Decisions on a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SummarizedDecision {
    /// Policy of the last call that is not the fallback's, if there is one.
    pub policy: Option<String>,
    /// Id of its version.
    pub version: Option<String>,
    /// Worker that answers.
    pub worker: Option<String>,
    /// Worker that computed the prompt, where that was another one.
    pub prefill_worker: Option<String>,
    /// Number of calls.
    pub calls: usize,
    /// Set if the fallback decided last.
    pub fallback: bool,
}

/// Answer and end of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SummarizedEnd {
    /// Status that the client was sent.
    pub status: Option<u16>,
    /// Outcome. `None` during the request.
    pub outcome: Option<String>,
    /// Arrival to the first byte of a streamed answer.
    pub ttft_s: Option<f64>,
    /// Arrival to the end.
    pub duration_s: Option<f64>,
    /// Code of the router's own refusal.
    pub error_code: Option<&'static str>,
}

/// Tokens of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SummarizedTokens {
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u32>,
    /// Tokens of the prompt that the worker held, by the index.
    pub matched_tokens: Option<u32>,
    /// Tokens of the prompt that the engine had cached, as it reports.
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer.
    pub output_tokens: Option<u64>,
}

/// Mark of a record's progress. A summary is another one only if the mark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceMark {
    calls: usize,
    status: Option<u16>,
    has_first: bool,
    is_over: bool,
}

impl Trace {
    /// Returns the sequence number of its request.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.request.seq
    }

    /// Returns the id of its request.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.request.id
    }

    /// Returns the pool of its request.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.request.pool
    }

    /// Returns the mark of its progress.
    #[must_use]
    pub fn mark(&self) -> TraceMark {
        let progress = self.progress();
        TraceMark {
            calls: progress.calls.len() + progress.left_out,
            status: progress.response.status,
            has_first: progress.response.first_token.is_some(),
            is_over: progress.outcome.is_some(),
        }
    }

    /// Returns the summary of its request.
    #[must_use]
    pub fn summary(&self) -> RequestSummary {
        let note = &self.request;
        let at = note.start.arrived_at.duration_since(UNIX_EPOCH);
        let progress = self.progress();
        RequestSummary {
            request: SummarizedRequest {
                id: note.id.clone(),
                seq: note.seq,
                at: at.unwrap_or_default().as_secs_f64(),
                model: note.model.clone(),
                pool: note.pool.to_string(),
                route: note.route,
                path: note.path.to_string(),
            },
            decision: decision(&progress),
            end: end(&progress),
            tokens: tokens(&progress, note.prompt_tokens),
        }
    }
}

fn decision(progress: &Progress) -> SummarizedDecision {
    let calls = progress.calls.iter().map(|record| &record.call);
    let last = calls.clone().next_back();
    let own = calls.rev().find(|call| !call.is_fallback).or(last);
    let (worker, prefill_worker) = match &progress.outcome {
        Some(outcome) => (outcome.worker.clone(), outcome.prefill.clone()),
        None => {
            let response = &progress.response;
            let name = |name: &Option<Box<str>>| name.as_deref().map(str::to_owned);
            (name(&response.worker), name(&response.prefill))
        }
    };
    SummarizedDecision {
        policy: own.map(|call| call.subject.name.clone()),
        version: own.and_then(|call| Some(call.subject.version_id.as_deref()?.to_owned())),
        worker,
        prefill_worker,
        calls: progress.calls.len() + progress.left_out,
        fallback: last.is_some_and(|call| call.is_fallback),
    }
}

fn end(progress: &Progress) -> SummarizedEnd {
    let error_code = progress.error_code;
    let Some(outcome) = &progress.outcome else {
        let response = &progress.response;
        return SummarizedEnd {
            status: response.status,
            ttft_s: response.first_token.map(|time| time.as_secs_f64()),
            error_code,
            ..SummarizedEnd::default()
        };
    };
    SummarizedEnd {
        status: outcome.status,
        outcome: Some(outcome.outcome.clone()),
        ttft_s: outcome.ttft_ms.map(|time| time.0 / 1e3),
        duration_s: Some(outcome.duration_ms.0 / 1e3),
        error_code,
    }
}

fn tokens(progress: &Progress, prompt: Option<u32>) -> SummarizedTokens {
    match &progress.outcome {
        Some(outcome) => SummarizedTokens {
            prompt_tokens: outcome.prompt_tokens,
            matched_tokens: outcome.matched_tokens,
            cached_tokens: outcome.cached_tokens,
            output_tokens: outcome.output_tokens,
        },
        None => SummarizedTokens {
            prompt_tokens: prompt,
            matched_tokens: progress.response.matched,
            ..SummarizedTokens::default()
        },
    }
}
