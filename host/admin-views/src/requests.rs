//! List of recorded requests, filtered by a query string.

use std::sync::Arc;

use decision_log::{RequestSummary, Trace};
use serde::Serialize;

use crate::query::{Query, QueryError};

/// Requests of a list unless the query limits them.
const USUAL_LIMIT: usize = 50;
/// Most requests of a list.
const LARGEST_LIMIT: usize = 200;
/// Value of `outcome` for requests that have not ended.
const OPEN: &str = "open";

const KEYS: [&str; 9] = [
    "pool", "worker", "policy", "outcome", "model", "q", "slower_s", "limit", "before",
];

/// Filter of requests. An absent part selects every request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFilter {
    pool: Option<String>,
    /// Worker of any leg.
    worker: Option<String>,
    policy: Option<String>,
    outcome: Option<String>,
    model: Option<String>,
    /// Part of the request id.
    id: Option<String>,
    /// Least duration in seconds.
    slower_s: Option<f64>,
    /// Sequence number after the newest request.
    before: Option<u64>,
    limit: usize,
}

/// List of requests, newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestList {
    /// Requests that the filter selects.
    pub requests: Vec<RequestSummary>,
    /// Number of requests in memory.
    pub kept: usize,
    /// Most requests of this list.
    pub limit: usize,
}

impl RequestFilter {
    /// Parses the filter of a query string.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn parse(query: &str) -> Result<Self, QueryError> {
        let query = Query::parse(query, &KEYS)?;
        let text = |key| query.text(key).map(str::to_owned);
        let limit = query.number("limit", "a number from 1 to 200", |limit| {
            (1..=LARGEST_LIMIT).contains(limit)
        })?;
        Ok(Self {
            pool: text("pool"),
            worker: text("worker"),
            policy: text("policy"),
            outcome: text("outcome"),
            model: text("model"),
            id: text("q"),
            slower_s: query.number("slower_s", "a number of seconds", |seconds: &f64| *seconds >= 0.0)?,
            before: query.number("before", "the `seq` of a request", |_| true)?,
            limit: limit.unwrap_or(USUAL_LIMIT),
        })
    }

    /// Lists the selected requests among `traces`, the newest of those that are kept, sorted from new to old.
    #[must_use]
    pub fn list(&self, traces: &[Arc<Trace>], kept: usize) -> RequestList {
        // Most requests are left out by what is fixed at their start, without a summary.
        let candidates = traces.iter().filter(|trace| self.may_select(trace));
        let selected = candidates
            .map(|trace| trace.summary())
            .filter(|request| self.selects(request));
        RequestList {
            requests: selected.take(self.limit).collect(),
            kept,
            limit: self.limit,
        }
    }

    fn may_select(&self, trace: &Trace) -> bool {
        self.before.is_none_or(|before| trace.seq() < before)
            && self.pool.as_deref().is_none_or(|pool| trace.pool() == pool)
            && self.id.as_deref().is_none_or(|part| trace.id().contains(part))
    }

    fn selects(&self, summary: &RequestSummary) -> bool {
        let (request, decision, end) = (&summary.request, &summary.decision, &summary.end);
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let outcome = end.outcome.as_deref().unwrap_or(OPEN);
        let is_worker = is(&self.worker, decision.worker.as_deref())
            || is(&self.worker, decision.prefill_worker.as_deref());
        let is_slow = |least: f64| end.duration_s.is_some_and(|duration| duration >= least);
        is(&self.pool, Some(&request.pool))
            && is_worker
            && is(&self.policy, decision.policy.as_deref())
            && is(&self.outcome, Some(outcome))
            && is(&self.model, Some(&request.model))
            && self.id.as_deref().is_none_or(|part| request.id.contains(part))
            && self.slower_s.is_none_or(is_slow)
    }
}

#[cfg(test)]
mod tests {
    use decision_log::{SummarizedDecision, SummarizedEnd, SummarizedRequest, SummarizedTokens};

    use super::*;

    fn summary() -> RequestSummary {
        RequestSummary {
            request: SummarizedRequest {
                id: "req-1234".to_owned(),
                seq: 7,
                at: 1.5,
                model: "org/model".to_owned(),
                pool: "chat".to_owned(),
                route: 1,
                path: "/v1/completions".to_owned(),
            },
            decision: SummarizedDecision {
                policy: Some("cache-aware".to_owned()),
                worker: Some("w0".to_owned()),
                prefill_worker: Some("p0".to_owned()),
                calls: 1,
                ..SummarizedDecision::default()
            },
            end: SummarizedEnd {
                outcome: Some("complete".to_owned()),
                duration_s: Some(2.0),
                ..SummarizedEnd::default()
            },
            tokens: SummarizedTokens::default(),
        }
    }

    #[track_caller]
    fn check(query: &str, expected: bool) {
        let filter = RequestFilter::parse(query).unwrap();
        assert_eq!(filter.selects(&summary()), expected, "{query}");
    }

    #[test]
    fn each_part_of_a_filter_must_match() {
        check("", true);
        check("pool=chat&worker=w0&policy=cache-aware&outcome=complete", true);
        check("model=org%2Fmodel&q=q-12&slower_s=2", true);
        check("worker=p0", true);
        for other in [
            "pool=x",
            "worker=w1",
            "policy=x",
            "outcome=open",
            "model=m",
            "q=9",
            "slower_s=2.1",
        ] {
            check(other, false);
        }
    }

    #[test]
    fn a_request_without_an_outcome_is_open() {
        let mut open = summary();
        open.end = SummarizedEnd::default();
        assert!(RequestFilter::parse("outcome=open").unwrap().selects(&open));
        assert!(!RequestFilter::parse("slower_s=0").unwrap().selects(&open));
    }

    #[test]
    fn limits_beyond_the_largest_are_refused() {
        for invalid in ["limit=0", "limit=201", "limit=x", "slower_s=NaN", "before=-1"] {
            assert!(RequestFilter::parse(invalid).is_err(), "{invalid}");
        }
        assert_eq!(RequestFilter::parse("").unwrap().limit, USUAL_LIMIT);
    }

    #[test]
    fn a_summary_is_one_flat_object() {
        let row = serde_json::to_value(summary()).unwrap();
        assert_eq!(row["id"], "req-1234");
        assert_eq!(row["prefill_worker"], "p0");
        assert_eq!(row["ttft_s"], serde_json::Value::Null);
        assert_eq!(row.as_object().unwrap().len(), 22);
    }
}
