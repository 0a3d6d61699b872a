//! Router queue of the policy: when a request is held, for which worker, and in which order.

use conductor_policy_sdk::{
    Call, Column, Host, OptionalNumber, Params, Plan, Quote, RequestNumber, Row, Verdict,
};

/// Offset that sorts requests close to their deadline before all others.
const URGENT: f64 = -1e12;
/// Offset that sorts requests past their deadline after all others.
const LATE: f64 = 1e12;
/// A request that may be held for less than this is sent immediately, in milliseconds.
const LAST_MS: f64 = 1_000.0;
/// Maximum time until a held request is re-evaluated, in milliseconds.
const AGAIN_MS: f64 = 10_000.0;

/// Configured queue: when requests are held, and in which order.
#[derive(Debug)]
pub(crate) struct Queue {
    queued: RequestNumber,
    waited_ms: RequestNumber,
    left_ms: RequestNumber,
    tried: RequestNumber,
    token_ms: Column,
    prefill_ms: Column,
    tbt_ms: Column,
    /// Prompt tokens queued on a worker of weight 1 below which it receives the next request.
    ahead_tokens: f64,
    /// Maximum number of held requests.
    most_held: f64,
    /// Deadline of the first token, in milliseconds.
    limit_ms: f64,
    /// Slack below which a request is sorted before shorter ones, in milliseconds.
    guard_ms: f64,
    /// Default time of a prompt token while it is unmeasured, in milliseconds.
    usual_token_ms: f64,
    /// True if a request that would miss its deadline is rejected.
    refuses: bool,
    /// Limit of the predicted time between tokens, in milliseconds; infinite if there is none.
    tbt_limit_ms: f64,
}

/// Held requests of each candidate: their number, and the work in tokens that goes before this request.
#[derive(Debug)]
pub(crate) struct HeldWork(Vec<u32>);

/// Request with the worker that is best for it.
#[derive(Debug)]
pub(crate) struct PlacedRequest<'a> {
    pub(crate) call: &'a Call<'a>,
    pub(crate) quote: &'a Quote<'a>,
    /// Worker that computes the prompt.
    pub(crate) row: Row<'a>,
    /// Tokens of the prompt that are not cached on that worker.
    pub(crate) uncached: f64,
    /// Work held for that worker ahead of this request, in tokens.
    pub(crate) held: f64,
    /// Row of the worker that answers.
    pub(crate) answers: Option<usize>,
}

impl HeldWork {
    /// Queries the held requests of each candidate. Requests with no more work than this one go before it.
    pub(crate) fn before<'c>(
        queue: &Queue,
        call: &Call<'c>,
        host: &impl Host,
        uncached: impl Fn(&Row<'c>) -> f64,
    ) -> Self {
        if call.number(queue.queued).known_or(0.0) == 0.0 {
            return Self(Vec::new());
        }
        let most: Vec<u32> = call.rows().map(|row| uncached(&row) as u32).collect();
        Self(host.ahead(&most))
    }

    /// Returns the number of requests held for that worker.
    pub(crate) fn requests(&self, row: &Row<'_>) -> f64 {
        self.get(2 * row.index())
    }

    /// Returns the work held for that worker ahead of this request.
    pub(crate) fn work(&self, row: &Row<'_>) -> f64 {
        self.get(2 * row.index() + 1)
    }

    fn get(&self, index: usize) -> f64 {
        self.0.get(index).copied().unwrap_or(0).into()
    }
}

impl Queue {
    pub(crate) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let limit_s = params
            .unit("seconds")
            .about("Deadline of the first token.")
            .number("first-token-within-s", 30.0, 0.001..=86_400.0);
        let guard_s = params
            .unit("seconds")
            .about("Slack before the latest start below which a request goes before shorter ones.")
            .number("guard-s", 2.0, 0.0..=86_400.0);
        let tbt_limit_ms = params
            .unit("milliseconds")
            .about("Maximum predicted time between tokens that refuse-late admits; 0: no limit.")
            .number("token-within-ms", 0.0, 0.0..=1_000_000.0);
        Self {
            queued: plan.request("pool.queued"),
            waited_ms: plan.request("request.waited-ms"),
            left_ms: plan.request("request.hold-left-ms"),
            tried: plan.request("request.tried"),
            token_ms: plan.column("cost.token-ms"),
            prefill_ms: plan.column("cost.prefill-ms"),
            tbt_ms: plan.column("cost.tbt-ms"),
            ahead_tokens: params
                .unit("tokens")
                .about("Queued prompt tokens up to which a worker of weight 1 receives the next request.")
                .number("ahead-tokens", 4_096.0, 0.0..=100_000_000.0),
            most_held: params
                .unit("requests")
                .about("Maximum number of held requests, below the pool's queue-limit; 0 holds none.")
                .number("most-held", 900.0, 0.0..=1_000_000.0),
            limit_ms: limit_s * 1e3,
            guard_ms: guard_s * 1e3,
            usual_token_ms: params
                .unit("milliseconds")
                .about("Default time of a prompt token while the router has not measured it.")
                .number("token-ms", 0.1, 0.000_001..=1_000.0),
            refuses: params
                .about("Rejection (429) of requests whose first token would be late, before any work is done for them.")
                .flag("refuse-late", false),
            tbt_limit_ms: if tbt_limit_ms > 0.0 { tbt_limit_ms } else { f64::INFINITY },
        }
    }

    /// Rejects a request that would miss its deadline or be answered too slowly, if enabled.
    pub(crate) fn refuse(&self, request: &PlacedRequest<'_>) -> Option<Verdict> {
        if !self.refuses || self.was_tried(request) {
            return None;
        }
        let late_ms = request.held * self.token_ms(&request.row) - self.slack_ms(request);
        if late_ms > 0.0 {
            return Some(refusal(late_ms, "the first token would come too late"));
        }
        let answers = request.answers.and_then(|row| request.call.rows().nth(row))?;
        let is_slow = answers.get(self.tbt_ms) > self.tbt_limit_ms;
        is_slow.then(|| refusal(LAST_MS, "the answer would be too slow"))
    }

    /// Holds a request whose worker has enough queued work.
    pub(crate) fn hold(&self, request: &PlacedRequest<'_>, host: &impl Host) -> Option<Verdict> {
        let PlacedRequest { call, quote, row, .. } = request;
        let left_ms = call.number(self.left_ms);
        let is_full = call.number(self.queued).known_or(0.0) >= self.most_held;
        let is_free = quote.work(row, quote.queued(row)) <= quote.work_anywhere(self.ahead_tokens);
        // An unknown time means that the pool holds no requests.
        let may_wait = left_ms > LAST_MS;
        if is_free || !may_wait || is_full || self.was_tried(request) {
            return None;
        }
        let slack_ms = self.slack_ms(request);
        host.wait_for(row.index(), request.uncached as u32);
        let urgent_in = slack_ms - self.guard_ms;
        let until = if urgent_in > 0.0 { urgent_in } else { AGAIN_MS };
        Some(Verdict::Queue {
            order: self.order(slack_ms, request.uncached),
            ask_again_ms: until.min(left_ms - LAST_MS).clamp(1.0, AGAIN_MS) as u32,
        })
    }

    /// Returns true if a worker has failed at this request before.
    fn was_tried(&self, request: &PlacedRequest<'_>) -> bool {
        request.call.number(self.tried).known_or(0.0) > 0.0
    }

    /// Returns the sort key: shortest first, urgent requests before, late requests last.
    fn order(&self, slack_ms: f64, work: f64) -> f64 {
        if slack_ms < 0.0 {
            LATE + work
        } else if slack_ms <= self.guard_ms {
            URGENT + slack_ms
        } else {
            work
        }
    }

    /// Returns the time for which the request can be held and still meet its deadline, in milliseconds.
    fn slack_ms(&self, request: &PlacedRequest<'_>) -> f64 {
        let waited_ms = request.call.number(self.waited_ms).known_or(0.0);
        let queued_ms = request.quote.queued(&request.row) * self.token_ms(&request.row);
        self.limit_ms - waited_ms - queued_ms - self.prefill_ms(request)
    }

    /// Returns the prefill time of the prompt, without waiting.
    fn prefill_ms(&self, request: &PlacedRequest<'_>) -> f64 {
        let predicted = request.row.get(self.prefill_ms);
        if predicted >= 0.0 {
            predicted
        } else {
            request.uncached * self.token_ms(&request.row)
        }
    }

    fn token_ms(&self, row: &Row<'_>) -> f64 {
        let measured = row.get(self.token_ms);
        if measured > 0.0 {
            measured
        } else {
            self.usual_token_ms
        }
    }
}

fn refusal(after_ms: f64, reason: &str) -> Verdict {
    Verdict::Reject {
        status: 429,
        retry_after_ms: after_ms.clamp(1.0, 60_000.0) as u32,
        reason: reason.to_owned(),
    }
}
