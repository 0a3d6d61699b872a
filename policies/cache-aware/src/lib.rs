//! Policy: the worker with the least priced time to first token, in prompt tokens.
//!
//! `cost = (Q + (x + u) * (1 + price * k) + d * decoding) / speed`: what is queued there, what this request adds,
//! and what that addition costs those who wait behind it. No thresholds, no modes; README.md derives each term.

use std::cell::OnceCell;

use conductor_policy_sdk::{Call, Column, Host, Known, Params, Plan, Policy, RequestNumber, Row, Verdict};
use conductor_policy_sdk::{WorkerId, export_policy, mix};

/// Bytes of a request's body for each token, where its tokens are not known; the router's own loads use the same.
const BYTES_PER_TOKEN: f64 = 4.0;

/// The worker with the least priced time to first token.
#[derive(Debug)]
pub struct CacheAware {
    numbers: Numbers,
    /// x: what a request costs besides its prompt, in tokens.
    request_tokens: f64,
    /// What one waiting request behind this one is worth, as a share of this one's work.
    backlog_price: f64,
    /// d: what one decoding request costs a prefill, in tokens.
    decode_tokens: f64,
    /// What a token in host memory saves of what one in device memory saves.
    host_worth: f64,
    /// The same for a token on disk.
    disk_worth: f64,
    /// Share of the prompt that a session's home is taken to hold where the index knows nothing.
    session_share: f64,
}

/// Where the router lays out what the formula reads.
#[derive(Debug)]
struct Numbers {
    prompt_tokens: RequestNumber,
    body_bytes: RequestNumber,
    weight: Column,
    /// Only asked for where speeds are to be measured.
    token_ms: Option<Column>,
    requests: Column,
    decoding: Column,
    prefill_tokens: Column,
    device: Column,
    host: Column,
    any: Column,
}

/// What is the same for all candidates of a call.
struct Prompt<'a> {
    call: &'a Call<'a>,
    tokens: f64,
    /// The column to go by; none while some candidate's speed is not known.
    token_ms: Option<Column>,
    /// Found when first needed: with a live index it never is.
    home: OnceCell<Option<WorkerId>>,
}

impl Policy for CacheAware {
    const NAME: &'static str = "cache-aware";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_measured = params.flag("measured-speed", false);
        Self {
            numbers: Numbers {
                prompt_tokens: plan.request("request.prompt-tokens"),
                body_bytes: plan.request("request.body-bytes"),
                weight: plan.column("worker.weight"),
                token_ms: is_measured.then(|| plan.column("cost.token-ms")),
                requests: plan.column("load.requests"),
                decoding: plan.column("load.decoding"),
                prefill_tokens: plan.column("load.prefill-tokens"),
                device: plan.column("prefix.device-tokens"),
                host: plan.column("prefix.host-tokens"),
                any: plan.column("prefix.any-tokens"),
            },
            request_tokens: params.number("request-tokens", 128.0, 0.0..=1_000_000.0),
            backlog_price: params.number("backlog-price", 1.0, 0.0..=100.0),
            decode_tokens: params.number("decode-tokens", 32.0, 0.0..=1_000_000.0),
            host_worth: params.number("host-worth", 0.75, 0.0..=1.0),
            disk_worth: params.number("disk-worth", 0.25, 0.0..=1.0),
            session_share: params.number("session-share", 0.75, 0.0..=1.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let estimate = call.number(self.numbers.body_bytes).known_or(0.0) / BYTES_PER_TOKEN;
        let prompt = Prompt {
            call,
            tokens: call.number(self.numbers.prompt_tokens).known_or(estimate),
            token_ms: self
                .numbers
                .token_ms
                .filter(|&speed| call.rows().all(|row| row.get(speed) > 0.0)),
            home: OnceCell::new(),
        };
        let least = call.least(
            || call.request().session.unwrap_or_else(|| host.random()),
            |row| self.cost(row, &prompt),
        );
        Verdict::route_to(least)
    }
}

impl CacheAware {
    /// Priced time to first token: in the tokens a worker of weight 1 computes in that time; in milliseconds where
    /// speeds are measured.
    fn cost(&self, row: &Row<'_>, prompt: &Prompt<'_>) -> f64 {
        let decoding = row.get(self.numbers.decoding);
        let waiting = (row.get(self.numbers.requests) - decoding).max(0.0);
        let uncached = (prompt.tokens - self.matched(row, prompt)).max(0.0);
        let own = (self.request_tokens + uncached) * (1.0 + self.backlog_price * waiting);
        let queued = row.get(self.numbers.prefill_tokens);
        let work = queued + own + self.decode_tokens * decoding;
        match prompt.token_ms {
            Some(token_ms) => work * row.get(token_ms),
            None => work / row.get(self.numbers.weight),
        }
    }

    /// Tokens of the prompt that need not be computed, each tier's at its worth.
    fn matched(&self, row: &Row<'_>, prompt: &Prompt<'_>) -> f64 {
        let device = row.get(self.numbers.device);
        if device.is_nan() {
            let at_home = prompt.home() == Some(row.id());
            return if at_home {
                self.session_share * prompt.tokens
            } else {
                0.0
            };
        }
        let host = row.get(self.numbers.host).known_or(device).max(device);
        let any = row.get(self.numbers.any).known_or(host).max(host);
        device + self.host_worth * (host - device) + self.disk_worth * (any - host)
    }
}

impl Prompt<'_> {
    /// The candidate its session belongs to: the one that ranks highest for it (rendezvous hashing), so that a
    /// worker that comes or goes moves no session but its own. A tie among all falls on the same one.
    fn home(&self) -> Option<WorkerId> {
        *self.home.get_or_init(|| {
            let session = self.call.request().session?;
            let ids = self.call.ids().iter().copied();
            ids.max_by_key(|&id| mix(session, u64::from(id)))
        })
    }
}

export_policy!(CacheAware);
