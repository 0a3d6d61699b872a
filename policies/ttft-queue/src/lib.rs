//! Policy: the worker or pair with the least priced time to first token, and one queue in the router, shortest first.
//!
//! ```text
//! own(w) = (Q - p + H + (x + u) * (1 + k + held)
//!           + (1 + stall * (decoding + 2 * recent)) * u + d * decoding) / speed
//! ```
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
mod workers;

use std::cell::LazyCell;

use conductor_policy_sdk::{
    Call, Host, Lanes, LanesMask, Number, NumberMask, OwnCosts, Pairing, Params, Phase, PlacementChoice,
    Plan, Policy, QueuedLoad, Verdict, export_policy,
};

use cached::CachedColumns;
use queue::{HeldWork, PlacedRequest, Queue};
use recent::RecentPrompts;
use workers::WorkerColumns;

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
    workers: WorkerColumns,
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
        let workers = WorkerColumns::new(plan);
        let queue = Queue::configure(params, plan);
        let stall_price = params
            .unit("share")
            .about("Cost of a computed token for each request being answered on the worker, as a share of its computing time: higher gives steadier answers and later first tokens.")
            .number("stall-price", 3.0, 0.0..=100.0);
        let pairing = params.only(&["near-label", "transfer-cost"], |params| {
            Pairing::configure(params, plan)
        });
        Self {
            workers,
            cached: CachedColumns::new(plan, pairing.transfer_cost()),
            pairing,
            queue,
            stall_price,
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let costs = self.pairing.costs(call);
        let quote = costs.quote();
        let cached = self.cached.of(&self.workers, call, *quote);
        let uncached = call.each(|rows| quote.uncached(cached.get(rows)));
        let held = HeldWork::before(&self.queue, call, host, &uncached);
        let recent = self.recent(call, host);
        let prompts = recent.each(call.ids());
        let (prompts, _) = prompts.as_chunks();
        let left_ms = self.queue.times.left_ms(call);
        let cost = call.each(|rows| {
            let number = Lanes::from;
            let worker = self.workers.of(rows);
            let uncached = uncached.of(rows);
            let times = worker.times(uncached);
            let [held, work] = held.of(rows);
            let recent = Lanes::from(prompts.get(rows.index()).copied().unwrap_or([0.0; 2]));
            let is_long = times.prefill_ms.exceeds(number(SHORT_STALL_MS));
            let ahead = work - worker.computed();
            let besides = self.token_price(worker.load, recent, is_long) * uncached + ahead;
            let slack_ms = worker.slack_ms(left_ms, times);
            let own = quote.priced_tokens(worker.load, uncached, held);
            let cost = worker.by_weight(own) + worker.by_weight(besides);
            match number(0.0).exceeds(slack_ms).any() {
                true => late_cost(cost, slack_ms),
                false => cost,
            }
        });
        let own = OwnCosts { uncached, cost };
        let salt = LazyCell::new(|| call.request().session.unwrap_or_else(|| host.random()));
        let placed = self.pairing.place(call, costs, &own, || *salt);
        let Some(row) = computing(call, placed).and_then(|row| call.row(row)) else {
            return placed.verdict();
        };
        let request = PlacedRequest {
            call,
            row,
            worker: self.workers.of(&row),
            uncached: own.uncached.get(row.index()),
            held: held.get(row.index())[1],
            answers: placed.answers().and_then(|row| call.row(row)),
        };
        self.queue.instead(&request, host).unwrap_or_else(|| {
            if self.stall_price > 0.0 && request.worker.writes() {
                recent.add(&row, host);
            }
            placed.verdict()
        })
    }
}

impl TtftQueue {
    /// Returns the cost of a computed token for other requests, as a share of its computing time: a long prompt also
    /// counts the answers of `recent` prompts.
    #[inline(always)]
    fn token_price(&self, load: QueuedLoad<Lanes>, recent: Lanes, is_long: LanesMask) -> Lanes {
        let price = |answers: Lanes| Lanes::from(REUSE_PRICE) + Lanes::from(self.stall_price) * answers;
        let young = Lanes::select(recent.exceeds(load.requests), load.requests, recent);
        // Both are computed: the time of the prompt is known last.
        let long = price(load.decoding + Lanes::from(RECENT_ANSWERS) * young);
        Lanes::select(is_long, long, price(load.decoding))
    }

    /// Returns the recent prompts of the workers. Without a price of stalls or workers that write answers there are
    /// none.
    fn recent(&self, call: &Call<'_>, host: &impl Host) -> RecentPrompts {
        let writes = || call.row_pairs().any(|rows| self.workers.of(&rows).writes().any());
        if self.stall_price > 0.0 && writes() {
            RecentPrompts::read(host)
        } else {
            RecentPrompts::none()
        }
    }
}

/// Adds the cost of workers on which the request would miss its target. It is cold, so that the compiler does not
/// compute it for all.
#[cold]
fn late_cost(cost: Lanes, slack_ms: Lanes) -> Lanes {
    let zero = Lanes::from(0.0);
    let late = Lanes::from(TOO_LATE) * (Lanes::from(1.0) - slack_ms);
    cost + Lanes::select(zero.exceeds(slack_ms), late, zero)
}

/// Returns the row of the worker that is to compute the prompt.
fn computing(call: &Call<'_>, placed: PlacementChoice) -> Option<usize> {
    match call.request().phase {
        Phase::Decode => None,
        Phase::Mixed | Phase::Prefill => placed.computes(),
    }
}

export_policy!(TtftQueue);
