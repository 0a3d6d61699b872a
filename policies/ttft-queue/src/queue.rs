//! The queue: who is held, for which worker, and who goes before whom.

use conductor_policy_sdk::{Call, Column, Host, Known, Params, Plan, Quote, RequestNumber, Row, Verdict};

/// Orders of requests that run out of time are below those of all others, by as much as this,
const URGENT: f64 = -1e12;
/// and those of requests whose time has run out above.
const LATE: f64 = 1e12;
/// A request is sent wherever it is best when it may be held for less than this, in milliseconds.
const LAST_MS: f64 = 1_000.0;
/// Longest time until a held request is asked about again, in milliseconds.
const AGAIN_MS: f64 = 10_000.0;

/// When requests are held, and in which order.
#[derive(Debug)]
pub(crate) struct Queue {
    queued: RequestNumber,
    waited_ms: RequestNumber,
    left_ms: RequestNumber,
    tried: RequestNumber,
    token_ms: Column,
    prefill_ms: Column,
    tbt_ms: Column,
    /// Prompt tokens that a worker of weight 1 is sent ahead.
    ahead_tokens: f64,
    /// Most requests that are held at a time.
    most_held: f64,
    /// The first token is to come within this, in milliseconds.
    limit_ms: f64,
    /// A request that has to begin within this goes before shorter ones, in milliseconds.
    guard_ms: f64,
    /// What a prompt token takes while that is not known, in milliseconds.
    usual_token_ms: f64,
    /// Whether a request that would come too late is refused.
    refuses: bool,
    /// Longest predicted time between tokens, in milliseconds; infinite where there is no limit.
    tbt_limit_ms: f64,
}

/// What is held for each candidate: how many requests, and the work of those that go before this one, in tokens.
#[derive(Debug)]
pub(crate) struct Held(Vec<u32>);

/// A request, and the worker that is best for it.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) call: &'a Call<'a>,
    pub(crate) quote: &'a Quote<'a>,
    /// Who computes the prompt.
    pub(crate) row: Row<'a>,
    /// Tokens of the prompt that are not cached there.
    pub(crate) uncached: f64,
    /// Work that is held for that worker and goes first, in tokens.
    pub(crate) held: f64,
    /// The row of who answers.
    pub(crate) answers: Option<usize>,
}

impl Held {
    /// What is held for each candidate; those that are no longer there than this request go before it.
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

    /// How many are held for that worker.
    pub(crate) fn requests(&self, row: &Row<'_>) -> f64 {
        self.get(2 * row.index())
    }

    /// The work that goes before this request there.
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
            .about("The first token is to come within this time.")
            .number("first-token-within-s", 30.0, 0.001..=86_400.0);
        let guard_s = params
            .unit("seconds")
            .about("A request that must begin within this time to come in time goes before shorter ones.")
            .number("guard-s", 2.0, 0.0..=86_400.0);
        let tbt_limit_ms = params
            .unit("milliseconds")
            .about("Longest predicted time between tokens with which refuse-late lets a request in; 0: any.")
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
                .about("A worker of weight 1 that has no more than so many prompt tokens to compute is sent the next request.")
                .number("ahead-tokens", 4_096.0, 0.0..=100_000_000.0),
            most_held: params
                .unit("requests")
                .about("Most requests that are held at a time, below the pool's queue-limit; 0 holds none.")
                .number("most-held", 900.0, 0.0..=1_000_000.0),
            limit_ms: limit_s * 1e3,
            guard_ms: guard_s * 1e3,
            usual_token_ms: params
                .unit("milliseconds")
                .about("What a prompt token takes on a worker while the router has not measured it.")
                .number("token-ms", 0.1, 0.000_001..=1_000.0),
            refuses: params
                .about("Refuse (429) a request whose first token would come too late, before anything is computed for it.")
                .flag("refuse-late", false),
            tbt_limit_ms: if tbt_limit_ms > 0.0 { tbt_limit_ms } else { f64::INFINITY },
        }
    }

    /// Refuses a request that would come too late, or be answered too slowly, where that is wanted.
    pub(crate) fn refuse(&self, request: &Request<'_>) -> Option<Verdict> {
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

    /// Holds a request whose worker has enough to do.
    pub(crate) fn hold(&self, request: &Request<'_>, host: &impl Host) -> Option<Verdict> {
        let Request { call, quote, row, .. } = request;
        let left_ms = call.number(self.left_ms);
        let is_full = call.number(self.queued).known_or(0.0) >= self.most_held;
        let is_free = quote.work(row, quote.queued(row)) <= quote.work_anywhere(self.ahead_tokens);
        // An unknown time to be held in: the pool holds none.
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

    /// Whether a worker failed at it before.
    fn was_tried(&self, request: &Request<'_>) -> bool {
        request.call.number(self.tried).known_or(0.0) > 0.0
    }

    /// The shortest first; before it whoever would come too late behind it, and last who comes too late anyway.
    fn order(&self, slack_ms: f64, work: f64) -> f64 {
        if slack_ms < 0.0 {
            LATE + work
        } else if slack_ms <= self.guard_ms {
            URGENT + slack_ms
        } else {
            work
        }
    }

    /// How much longer the request may be held and still come in time, in milliseconds.
    fn slack_ms(&self, request: &Request<'_>) -> f64 {
        let waited_ms = request.call.number(self.waited_ms).known_or(0.0);
        let queued_ms = request.quote.queued(&request.row) * self.token_ms(&request.row);
        self.limit_ms - waited_ms - queued_ms - self.prefill_ms(request)
    }

    /// What the prompt takes once it begins.
    fn prefill_ms(&self, request: &Request<'_>) -> f64 {
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
