//! least-queued: routes to the candidate with the fewest requests relative to its weight.
//!
//! The router calls `configure` once for each instance and `schedule` for every request. Any instance may
//! serve any request, so globals must not carry data from one call to the next; use
//! `conductor::policy::state`.

use std::cell::Cell;

use conductor::policy::host;
use conductor::policy::types::{Candidates, Choice, Hold, Request, Verdict};
use exports::conductor::policy::{policy, schedule};

// Bindings of every type and function of wit/policy.wit.
wit_bindgen::generate!({ path: "wit", world: "scheduler" });

/// Requested columns, in this order: `numbers` has them row by row. All names: wit/README.md of Conductor.
const COLUMNS: [&str; 2] = ["load.requests", "worker.weight"];

thread_local! {
    /// A candidate with this many requests is full; 0 means no limit.
    static MAX_REQUESTS: Cell<f64> = const { Cell::new(0.0) };
}

struct Policy;

export!(Policy);

impl policy::Guest for Policy {
    fn describe() -> policy::Manifest {
        policy::Manifest {
            name: "least-queued".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Errors are shown to the operator, and the previous policy stays active.
    fn configure(params: String) -> Result<policy::Plan, String> {
        MAX_REQUESTS.set(max_requests(&params)?);
        Ok(policy::Plan {
            request_features: vec![],
            candidate_features: COLUMNS.map(str::to_owned).into(),
        })
    }
}

/// Reads the table `[policies.least-queued.params]` of conductor.toml, which arrives as JSON: `{}` or
/// `{"max-requests": NUMBER}`. For more parameters use a JSON crate.
fn max_requests(params: &str) -> Result<f64, String> {
    let inner = params.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or("the parameters must be a table")?.trim();
    if inner.is_empty() {
        return Ok(0.0);
    }
    match inner.split_once(':') {
        Some((name, value)) if name.trim() == r#""max-requests""# => match value.trim().parse() {
            Ok(most) if most >= 0.0 => Ok(most),
            _ => Err("`max-requests` must be a number, 0 or more".to_owned()),
        },
        _ => Err("there is no parameter but `max-requests`".to_owned()),
    }
}

impl schedule::Guest for Policy {
    fn schedule(_request: Request, candidates: Candidates) -> Verdict {
        let limit = MAX_REQUESTS.get();
        let rows = candidates.numbers.as_chunks().0;
        let (mut least, mut tied, mut any_full) = (f64::INFINITY, 0, false);
        for row in rows {
            let here = cost(row, limit);
            any_full |= is_full(row, limit);
            if here < least {
                (least, tied) = (here, 1);
            } else if here == least {
                tied += 1;
            }
        }
        if tied > 0 {
            // Picks one of the tied candidates, each with the same probability.
            let nth = if tied > 1 { (host::random() >> 32) * tied >> 32 } else { 0 };
            let mut ties = (0..).zip(rows).filter(|(_, row)| cost(row, limit) == least);
            let row = ties.nth(nth as usize).map_or(0, |(row, _)| row);
            Verdict::Route(Choice { row, prefill: None, score: -least })
        } else if any_full {
            // First come, first served.
            Verdict::Queue(Hold { order: host::now_us() as f64, ask_again_ms: 50 })
        } else {
            // No load is known: the router's fallback decides.
            Verdict::Pass
        }
    }
}

fn is_full(&[requests, _]: &[f64; 2], limit: f64) -> bool {
    limit > 0.0 && requests >= limit
}

/// Returns requests relative to the weight; NaN for a full candidate, which compares as neither less nor
/// equal. Unknown numbers are NaN: an unknown weight counts as 1, and an unknown load makes the cost NaN.
fn cost(row: &[f64; 2], limit: f64) -> f64 {
    let &[requests, weight] = row;
    if is_full(row, limit) {
        f64::NAN
    } else {
        requests / if weight > 0.0 { weight } else { 1.0 }
    }
}
