//! Router queue of the policy: when a request is held, for which worker, in which order, and when it is refused.

use conductor_policy_sdk::{
    Call, EachNumber, Host, Lanes, OptionalNumber, Params, Plan, RequestNumber, Row, RowPair, Verdict,
};

use crate::times::TimeColumns;
use crate::workers::WorkerNumbers;

/// Offset that sorts requests close to their deadline before all others.
const URGENT: f64 = -1e12;
/// Offset that sorts requests past their deadline after all others.
const LATE: f64 = 1e12;
/// Slack below which a request goes before shorter ones, in milliseconds.
const GUARD_MS: f64 = 1_000.0;
/// Maximum time until a held request is re-evaluated, in milliseconds.
const AGAIN_MS: f64 = 10_000.0;
/// Work that goes before a request, as a multiple of the work held ahead of it: shorter requests arrive while it waits.
const AHEAD_FACTOR: f64 = 1.5;
/// Target of a prompt that takes long by itself, as a multiple of its own time: it is served if the fleet has room.
const LONG_PROMPT: f64 = 1.25;
/// Predicted time between tokens that is counted for each predicted one: answers grow while they are written.
const GROWTH: f64 = 1.06;

/// Configured queue: when requests are held or refused, and in which order they go.
#[derive(Debug)]
pub(crate) struct Queue {
    queued: RequestNumber,
    left_ms: RequestNumber,
    tried: RequestNumber,
    pub(crate) times: TimeColumns,
    /// True if a request that would miss its target is refused.
    refuses: bool,
    /// Limit of the predicted time between tokens, in milliseconds; infinite if there is none.
    between_ms: f64,
}

/// Held requests of each candidate: their number, and the work in tokens that goes before this request.
#[derive(Debug)]
pub(crate) struct HeldWork(Vec<f64>);

/// Request with the worker that is best for it.
#[derive(Debug)]
pub(crate) struct PlacedRequest<'a> {
    pub(crate) call: &'a Call<'a>,
    /// Worker that computes the prompt.
    pub(crate) row: Row<'a>,
    /// Its numbers.
    pub(crate) worker: WorkerNumbers<f64>,
    /// Tokens of the prompt that the worker has to compute.
    pub(crate) uncached: f64,
    /// Work held for that worker ahead of this request, in tokens.
    pub(crate) held: f64,
    /// Worker that answers.
    pub(crate) answers: Option<Row<'a>>,
}

impl HeldWork {
    /// Queries the held requests of each candidate. Requests with no more work than this one go before it.
    pub(crate) fn before(queue: &Queue, call: &Call<'_>, host: &impl Host, uncached: &EachNumber) -> Self {
        if call.number(queue.queued).known_or(0.0) == 0.0 {
            return Self(Vec::new());
        }
        let most = uncached.iter().map(|tokens| tokens as u32);
        let most: Vec<u32> = most.take(call.ids().len()).collect();
        let mut held: Vec<f64> = host.ahead(&most).into_iter().map(f64::from).collect();
        // Two numbers each, for two workers at a time.
        held.resize(held.len().next_multiple_of(4), 0.0);
        Self(held)
    }

    /// Returns, for two workers, the number of requests held for them, and their work ahead of this request.
    #[inline(always)]
    pub(crate) fn of(&self, rows: &RowPair<'_>) -> [Lanes; 2] {
        let (held, _) = self.0.as_chunks();
        let [held, work, second_held, second_work] = held.get(rows.index()).copied().unwrap_or([0.0; 4]);
        [[held, second_held], [work, second_work]].map(Lanes::from)
    }

    /// Returns the number of requests held for the worker of that row, and their work ahead of this request.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize) -> [f64; 2] {
        let (held, _) = self.0.as_chunks();
        held.get(row).copied().unwrap_or([0.0; 2])
    }
}

impl Queue {
    pub(crate) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let target_s = params
            .unit("seconds")
            .about("Target of the first token where neither the route nor the pool has a `ttft-target`: within it short prompts go first, and no request misses it for a shorter one.")
            .number("first-token-within-s", 30.0, 0.001..=86_400.0);
        let between_ms = params
            .unit("milliseconds")
            .about("Maximum predicted time between tokens: above it a request waits, and is refused when it is late; 0: no limit.")
            .number("token-within-ms", 0.0, 0.0..=1_000_000.0);
        Self {
            queued: plan.request("pool.queued"),
            left_ms: plan.request("request.hold-left-ms"),
            tried: plan.request("request.tried"),
            times: TimeColumns::new(plan, target_s * 1e3),
            refuses: params
                .about("Refusal (429 with Retry-After) of requests that would miss the target, before any work is done for them; false: they keep their place.")
                .flag("refuse-late", true),
            between_ms: if between_ms > 0.0 { between_ms } else { f64::INFINITY },
        }
    }

    /// Returns what happens to a request instead of its dispatch: it is held, or refused. None if it is sent.
    pub(crate) fn instead(&self, request: &PlacedRequest<'_>, host: &impl Host) -> Option<Verdict> {
        // A request that a worker has failed is neither held nor refused.
        if request.call.number(self.tried).known_or(0.0) > 0.0 {
            return None;
        }
        let slow = request.answers.filter(|row| self.is_slow(row));
        if slow.is_none() && (self.times.is_free(&request.row, &request.worker) || self.shares_step(request))
        {
            return None;
        }
        self.refuse(request, slow.is_some())
            .or_else(|| self.hold(request, slow, host))
    }

    /// Returns true if the pool holds no other request, and the prompt shares a step with one that runs there.
    fn shares_step(&self, request: &PlacedRequest<'_>) -> bool {
        let others = request.call.number(self.queued).known_or(0.0);
        others == 0.0 && request.worker.shares_step(request.uncached)
    }

    /// Refuses a request that would miss its target. A guess refuses nothing.
    fn refuse(&self, request: &PlacedRequest<'_>, is_slow: bool) -> Option<Verdict> {
        let PlacedRequest { call, worker, .. } = request;
        if !self.refuses || !worker.is_measured() {
            return None;
        }
        // Without a queue the request cannot wait for its answer to be fast enough.
        if is_slow && !may_wait(call.number(self.left_ms)) {
            return Some(refusal(1_000.0, "the answer would be too slow"));
        }
        let ahead_ms = AHEAD_FACTOR * request.held * worker.token_ms();
        let late_ms = ahead_ms - self.slack_ms(request) - self.grace_ms(request);
        (late_ms > 0.0).then(|| refusal(late_ms, "the first token would come too late"))
    }

    /// Holds a request, for the worker that is to compute it or the one whose answers are too slow.
    fn hold(&self, request: &PlacedRequest<'_>, slow: Option<Row<'_>>, host: &impl Host) -> Option<Verdict> {
        let PlacedRequest {
            call, row, uncached, ..
        } = request;
        if !may_wait(call.number(self.left_ms)) {
            return None;
        }
        let slack_ms = self.slack_ms(request);
        host.wait_for(slow.as_ref().unwrap_or(row).index(), *uncached as u32);
        let urgent_in = slack_ms - GUARD_MS;
        let until = if urgent_in > 0.0 { urgent_in } else { AGAIN_MS };
        Some(Verdict::Queue {
            order: order(slack_ms, *uncached),
            ask_again_ms: until.clamp(1.0, AGAIN_MS) as u32,
        })
    }

    /// Returns true if the answers of the worker would be too slow with this request.
    fn is_slow(&self, row: &Row<'_>) -> bool {
        GROWTH * self.times.between_tokens_ms(row) > self.between_ms
    }

    /// Returns the slack of the request.
    fn slack_ms(&self, request: &PlacedRequest<'_>) -> f64 {
        let left_ms = self.times.left_ms(request.call);
        let times = request.worker.times(request.uncached);
        request.worker.slack_ms(left_ms, times)
    }

    /// Returns the time by which a prompt that is long by itself may miss the target, in milliseconds.
    fn grace_ms(&self, request: &PlacedRequest<'_>) -> f64 {
        let long_ms = LONG_PROMPT * request.worker.times(request.uncached).prefill_ms;
        (long_ms - self.times.target_ms(request.call)).max(0.0)
    }
}

/// Returns true if the pool holds requests. The time is NaN where it does not. A request without time left is held too:
/// the router answers it with an error.
fn may_wait(left_ms: f64) -> bool {
    !left_ms.is_nan()
}

/// Returns the sort key: shortest first, urgent requests before, late requests last.
fn order(slack_ms: f64, work: f64) -> f64 {
    if slack_ms < 0.0 {
        LATE + work
    } else if slack_ms <= GUARD_MS {
        URGENT + slack_ms
    } else {
        work
    }
}

fn refusal(after_ms: f64, reason: &str) -> Verdict {
    Verdict::Reject {
        status: 429,
        retry_after_ms: after_ms.clamp(1_000.0, 60_000.0) as u32,
        reason: reason.to_owned(),
    }
}
