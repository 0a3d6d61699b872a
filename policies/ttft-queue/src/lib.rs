//! Policy: the worker or pair with the least priced time to first token, and a queue for each worker in the
//! router, shortest first.
//!
//! `own(w) = (Q + H + (x + u) * (1 + price * (k + held)) + (reuse + stall * decoding) * u + d * decoding) /
//! speed`.
//!
//! It extends the price of `cache-aware`. H is the work held for the worker ahead of this request, and `held`
//! is the number of all requests held for it. A computed token also costs `reuse`, and `stall` for each
//! request that is being answered on the worker. README.md derives each term and the order of the queue.

mod queue;

use std::cell::LazyCell;

use conductor_policy_sdk::{
    Call, Host, OwnCost, Pairing, Params, Phase, PlacementChoice, Plan, Policy, SessionHome, Verdict,
    export_policy,
};

use queue::{HeldWork, PlacedRequest, Queue};

/// Policy: priced time to first token, with a queue for each worker.
#[derive(Debug)]
pub struct TtftQueue {
    pairing: Pairing,
    home: SessionHome,
    queue: Queue,
    /// Cost of a computed token for later requests, as a share of its computing time.
    reuse_price: f64,
    /// Cost of a computed token for each request being answered on the worker, as a share of its computing
    /// time.
    stall_price: f64,
}

impl Policy for TtftQueue {
    const NAME: &'static str = "ttft-queue";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            pairing: Pairing::configure(params, plan),
            home: SessionHome::configure(params),
            queue: Queue::configure(params, plan),
            reuse_price: params
                .unit("share")
                .about("Cost of a computed token for other requests, as a share of its computing time.")
                .number("reuse-price", 1.0, 0.0..=100.0),
            stall_price: params
                .unit("share")
                .about("Cost of a computed token for each request being answered on the worker, as a share of its computing time.")
                .number("stall-price", 0.5, 0.0..=100.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let costs = self.pairing.costs(call);
        let quote = costs.quote();
        let matches = self.home.matches(call, *quote);
        let uncached = |row: &_| quote.uncached(matches.get(row));
        let held = HeldWork::before(&self.queue, call, host, uncached);
        let own = |row: &_| {
            let own = costs.own_with(row, matches.get(row), held.requests(row));
            let stalled = self.stall_price * quote.decoding(row);
            let besides = (self.reuse_price + stalled) * own.uncached + held.work(row);
            OwnCost {
                cost: own.cost + quote.work(row, besides),
                ..own
            }
        };
        let salt = LazyCell::new(|| call.request().session.unwrap_or_else(|| host.random()));
        let placed = self.pairing.place(call, costs, own, || *salt);
        let computing = computing(call, placed);
        let Some(row) = computing.and_then(|row| call.rows().nth(row)) else {
            return placed.verdict();
        };
        let request = PlacedRequest {
            call,
            quote,
            row,
            uncached: uncached(&row),
            held: held.work(&row),
            answers: placed.answers(),
        };
        let instead = self
            .queue
            .refuse(&request)
            .or_else(|| self.queue.hold(&request, host));
        instead.unwrap_or_else(|| placed.verdict())
    }
}

/// Returns the row of the worker that is to compute the prompt.
fn computing(call: &Call<'_>, placed: PlacementChoice) -> Option<usize> {
    match call.request().phase {
        Phase::Decode => None,
        Phase::Mixed | Phase::Prefill => placed.computes(),
    }
}

export_policy!(TtftQueue);
