//! Policy: the worker, or the pair, with the least priced time to first token; and a queue for each worker in the router, shortest first.
//!
//! `own(w) = (Q + H + (x + u) * (1 + price * (k + held)) + (reuse + stall * decoding) * u + d * decoding) / speed`:
//! cache-aware's price, with H, the work that is held for that worker and goes before this request, with all that are
//! held for it, and with what computing a token costs beyond its own time: `reuse`, and `stall` for each request that is
//! answered there and waits for it. README.md derives each term and the order of the queue.

mod queue;

use std::cell::LazyCell;

use conductor_policy_sdk::{
    Call, Host, Own, Pairing, Params, Phase, Placed, Plan, Policy, SessionHome, Verdict, export_policy,
};

use queue::{Held, Queue, Request};

/// Priced time to first token, with a queue for each worker.
#[derive(Debug)]
pub struct TtftQueue {
    pairing: Pairing,
    home: SessionHome,
    queue: Queue,
    /// What a computed token costs besides its own time, as a share of that.
    reuse_price: f64,
    /// What computing a token costs each request that is answered beside it meanwhile, as a share of the time it takes.
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
                .about("What computing a token costs others besides the time it takes, as a share of that.")
                .number("reuse-price", 1.0, 0.0..=100.0),
            stall_price: params
                .unit("share")
                .about("What computing a token costs each request that is answered there meanwhile, as a share of the time it takes.")
                .number("stall-price", 0.5, 0.0..=100.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let costs = self.pairing.costs(call);
        let quote = costs.quote();
        let matches = self.home.matches(call, *quote);
        let uncached = |row: &_| quote.uncached(matches.get(row));
        let held = Held::before(&self.queue, call, host, uncached);
        let own = |row: &_| {
            let own = costs.own_with(row, matches.get(row), held.requests(row));
            let stalled = self.stall_price * quote.decoding(row);
            let besides = (self.reuse_price + stalled) * own.uncached + held.work(row);
            Own {
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
        let request = Request {
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

/// The row of the worker that is to compute the prompt.
fn computing(call: &Call<'_>, placed: Placed) -> Option<usize> {
    match call.request().phase {
        Phase::Decode => None,
        Phase::Mixed | Phase::Prefill => placed.computes(),
    }
}

export_policy!(TtftQueue);
