//! What one candidate contributes to a cost, in prompt tokens: the work a worker of weight 1 does for one of them.
//!
//! Knows no roles and no pairs.

use conductor_policy_sdk::{Call, Column, Known, Params, Plan, RequestNumber, Row};

/// Bytes of a request's body for each token, where its tokens are not known; the router's own loads use the same.
const BYTES_PER_TOKEN: f64 = 4.0;

/// The terms and their parameters.
#[derive(Debug)]
pub(crate) struct Terms {
    prompt_tokens: RequestNumber,
    body_bytes: RequestNumber,
    weight: Column,
    requests: Column,
    decoding: Column,
    prefill_tokens: Column,
    device: Column,
    host: Column,
    any: Column,
    /// x: what a request costs besides its prompt, in tokens.
    request_tokens: f64,
    /// What one waiting request behind this one is worth, as a share of this one's work.
    backlog_price: f64,
    /// What one request on a decode worker costs another one there, in tokens.
    decode_tokens: f64,
    /// What a token in host memory saves of what one in device memory saves.
    host_worth: f64,
    /// The same for a token on disk.
    disk_worth: f64,
    /// What the transfer of one token adds to the time to first token, in tokens computed.
    transfer_tokens: f64,
}

/// What one candidate would do for the prompt by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Tokens of the prompt that are not cached there.
    pub(crate) uncached: f64,
    /// Priced time to first token.
    pub(crate) cost: f64,
}

impl Terms {
    pub(crate) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let transfer_cost = params.number("transfer-cost", 0.04, 0.0..=1_000.0);
        let transfer_overlap = params.number("transfer-overlap", 0.0, 0.0..=1.0);
        Self {
            prompt_tokens: plan.request("request.prompt-tokens"),
            body_bytes: plan.request("request.body-bytes"),
            weight: plan.column("worker.weight"),
            requests: plan.column("load.requests"),
            decoding: plan.column("load.decoding"),
            prefill_tokens: plan.column("load.prefill-tokens"),
            device: plan.column("prefix.device-tokens"),
            host: plan.column("prefix.host-tokens"),
            any: plan.column("prefix.any-tokens"),
            request_tokens: params.number("request-tokens", 128.0, 0.0..=1_000_000.0),
            backlog_price: params.number("backlog-price", 1.0, 0.0..=100.0),
            decode_tokens: params.number("decode-tokens", 32.0, 0.0..=1_000_000.0),
            host_worth: params.number("host-worth", 0.75, 0.0..=1.0),
            disk_worth: params.number("disk-worth", 0.25, 0.0..=1.0),
            transfer_tokens: transfer_cost * (1.0 - transfer_overlap),
        }
    }

    /// Length of the prompt, estimated where it is not known.
    pub(crate) fn prompt(&self, call: &Call<'_>) -> f64 {
        let estimate = call.number(self.body_bytes).known_or(0.0) / BYTES_PER_TOKEN;
        call.number(self.prompt_tokens).known_or(estimate)
    }

    /// What a candidate would do by itself: queue, uncached work priced by who waits, decoding beside it.
    pub(crate) fn own(&self, row: &Row<'_>, prompt: f64) -> Own {
        let uncached = (prompt - self.matched(row)).max(0.0);
        let decoding = self.decoding(row);
        let waiting = (row.get(self.requests) - decoding).max(0.0);
        let added = (self.request_tokens + uncached) * (1.0 + self.backlog_price * waiting);
        let queued = row.get(self.prefill_tokens);
        Own {
            uncached,
            cost: (queued + added + self.decode_tokens * decoding) / row.get(self.weight),
        }
    }

    /// What a decode worker adds when the prompt comes to it computed: prefills of its own in front, and the
    /// requests that it decodes or is about to.
    pub(crate) fn crowding(&self, row: &Row<'_>) -> f64 {
        let requests = self.decode_tokens * row.get(self.requests);
        (row.get(self.prefill_tokens) + requests) / row.get(self.weight)
    }

    /// What it adds that so many tokens come over the network.
    pub(crate) fn transfer(&self, tokens: f64) -> f64 {
        self.transfer_tokens * tokens
    }

    /// Requests past their first token.
    pub(crate) fn decoding(&self, row: &Row<'_>) -> f64 {
        row.get(self.decoding)
    }

    /// Tokens of the prompt that need not be computed, each tier's at its worth; none where that is not known.
    fn matched(&self, row: &Row<'_>) -> f64 {
        let device = row.get(self.device).known_or(0.0);
        let host = row.get(self.host).known_or(device).max(device);
        let any = row.get(self.any).known_or(host).max(host);
        device + self.host_worth * (host - device) + self.disk_worth * (any - host)
    }
}
