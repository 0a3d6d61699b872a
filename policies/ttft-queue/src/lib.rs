//! Policy: the worker or pair with the least priced time to first token, and one queue in the router, shortest first.
//!
//! `own(w) = (Q - p + H + (x + u) * (1 + k + held) + (1 + stall * (decoding + 2 * recent)) * u + d * decoding) / speed`.
//!
//! `u` are the tokens that the worker has to compute: those that it neither holds nor fetches. Q is its queued work,
//! `p` the part of its running prompt that is taken as computed, H the work held for it ahead of this request, `k` and
//! `held` the requests that wait there and for it. A computed token also evicts another, and stalls each request that
//! is being answered, the `recent` ones most. A worker on which the request would miss its target counts only if there
//! is no other. README.md explains each rule.

mod cached;
mod prompts;
mod queue;
mod recent;
mod times;

use std::cell::LazyCell;

use conductor_policy_sdk::{
    Call, Host, OwnCost, Pairing, Params, Phase, PlacementChoice, Plan, Policy, Verdict, export_policy,
};

use cached::CachedColumns;
use queue::{HeldWork, PlacedRequest, Queue};
use recent::RecentPrompts;

/// Cost of a computed token for later requests, whose blocks it evicts, as a share of its computing time.
const REUSE_PRICE: f64 = 1.0;
/// Answers for which a prompt counts that was sent there just now: its own answer is or will be young.
const RECENT_ANSWERS: f64 = 2.0;
/// Longest prompt that recent answers endure without a price, in milliseconds: no limit of theirs is as short.
const SHORT_STALL_MS: f64 = 50.0;
/// Cost of a worker on which the request would miss its target: more than any other cost.
const TOO_LATE: f64 = 1e12;

/// Policy: priced time to first token, with a queue for each worker.
#[derive(Debug)]
pub struct TtftQueue {
    pairing: Pairing,
    cached: CachedColumns,
    queue: Queue,
    /// Cost of a computed token for each request being answered on the worker, as a share of its computing
    /// time.
    stall_price: f64,
}

impl Policy for TtftQueue {
    const NAME: &'static str = "ttft-queue";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let queue = Queue::configure(params, plan);
        let stall_price = params
            .unit("share")
            .about("Cost of a computed token for each request being answered on the worker, as a share of its computing time: higher gives steadier answers and later first tokens.")
            .number("stall-price", 3.0, 0.0..=100.0);
        let pairing = params.only(&["near-label", "transfer-cost"], |params| {
            Pairing::configure(params, plan)
        });
        Self {
            cached: CachedColumns::new(plan, pairing.transfer_cost()),
            pairing,
            queue,
            stall_price,
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let costs = self.pairing.costs(call);
        let quote = costs.quote();
        let cached = self.cached.of(call, *quote);
        let uncached = |row: &_| quote.uncached(cached.get(row));
        let held = HeldWork::before(&self.queue, call, host, uncached);
        let times = &self.queue.times;
        let recent = self.recent(call, host);
        let own = |row: &_| {
            let own = costs.own_with(row, cached.get(row), held.requests(row));
            let is_long = times.prefill_ms(row, own.uncached) > SHORT_STALL_MS;
            let young = if is_long {
                recent.get(row).min(times.prompts.requests(row))
            } else {
                0.0
            };
            let answers = quote.decoding(row) + RECENT_ANSWERS * young;
            let stalled = self.stall_price * answers;
            let ahead = held.work(row) - times.prompts.computed(row);
            let besides = (REUSE_PRICE + stalled) * own.uncached + ahead;
            let late_ms = -times.slack_ms(call, row, own.uncached);
            let too_late = if late_ms > 0.0 {
                TOO_LATE * (1.0 + late_ms)
            } else {
                0.0
            };
            OwnCost {
                cost: own.cost + quote.work(row, besides) + too_late,
                ..own
            }
        };
        let salt = LazyCell::new(|| call.request().session.unwrap_or_else(|| host.random()));
        let placed = self.pairing.place(call, costs, own, || *salt);
        let Some(row) = computing(call, placed).and_then(|row| call.rows().nth(row)) else {
            return placed.verdict();
        };
        let request = PlacedRequest {
            call,
            row,
            uncached: uncached(&row),
            held: held.work(&row),
            answers: placed.answers().and_then(|row| call.rows().nth(row)),
        };
        self.queue.instead(&request, host).unwrap_or_else(|| {
            if self.stall_price > 0.0 && times.prompts.writes(&row) {
                recent.add(&row, host);
            }
            placed.verdict()
        })
    }
}

impl TtftQueue {
    /// Returns the recent prompts of the workers. Without a price of stalls or workers that write answers there are none.
    fn recent(&self, call: &Call<'_>, host: &impl Host) -> RecentPrompts {
        let writes = || call.rows().any(|row| self.queue.times.prompts.writes(&row));
        if self.stall_price > 0.0 && writes() {
            RecentPrompts::read(host)
        } else {
            RecentPrompts::none()
        }
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
