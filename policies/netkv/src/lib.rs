//! Policy: the decode worker with the least transfer, wait and first token, by its distance in the network (NetKV).
//!
//! `cost(p, d) = transfer(p, d) + wait(d) + token(d)`, in milliseconds. The paper takes the prefill worker from a
//! scheduler that knows caches and loads; here that is the price of `cache-aware`. README.md defines the terms and
//! lists the differences from the paper.

mod network;

use conductor_policy_sdk::{
    Call, Column, Host, LeastCost, OptionalNumber, Params, Phase, Plan, Policy, Price, Quote, Role,
    RoleColumn, Row, Verdict, export_policy,
};

use network::{Network, TIERS};

/// Policy: network-aware choice of the decode worker.
#[derive(Debug)]
pub struct NetKv {
    /// Price of a prompt on a prefill worker.
    price: Price,
    network: Network,
    role: RoleColumn,
    queued: Column,
    requests: Column,
    tbt_ms: Column,
    kv_usage: Column,
    kv_tokens: Column,
    /// Requests of a decode batch; further ones wait.
    batch_slots: f64,
    /// Tokens of a decode worker's memory that stay free.
    reserve_tokens: f64,
}

impl Policy for NetKv {
    const NAME: &'static str = "netkv";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            price: params.only(&[], |params| Price::configure(params, plan)),
            network: Network::configure(params, plan),
            role: plan.roles(),
            queued: plan.column("load.queued"),
            requests: plan.column("load.requests"),
            tbt_ms: plan.column("cost.tbt-ms"),
            kv_usage: plan.column("engine.kv-usage"),
            kv_tokens: plan.column("engine.kv-tokens"),
            batch_slots: params
                .unit("requests")
                .about("Requests of a decode batch; further ones wait.")
                .number("batch-slots", 256.0, 1.0..=1_000_000.0),
            reserve_tokens: params
                .unit("tokens")
                .about("Tokens of a decode worker's memory that must stay free.")
                .number("reserve-tokens", 4_096.0, 0.0..=100_000_000.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let quote = self.price.quote(call, |row| row.role(self.role) != Role::Decode);
        let first_token = |row: &Row<'_>| quote.cost(row, matched(&quote, row));
        let of_role = |row: &Row<'_>, role: Role, cost: f64| match row.role(self.role) == role {
            true => cost,
            false => f64::NAN,
        };
        match call.request().phase {
            Phase::Prefill => return Verdict::route_to(call.least(|| host.random(), first_token)),
            Phase::Decode => return Verdict::route_to(self.decode(call, &quote, host, None)),
            Phase::Mixed => {}
        }
        let prefill = call.least(
            || host.random(),
            |row| of_role(row, Role::Prefill, first_token(row)),
        );
        let from = prefill.and_then(|prefill| call.rows().nth(prefill.row));
        let decode = from.and_then(|from| self.decode(call, &quote, host, Some(from)));
        match (prefill, decode) {
            (Some(prefill), Some(decode)) => Verdict::Pair {
                row: decode.row,
                prefill: prefill.row,
                score: -decode.cost,
            },
            // Without both legs one worker serves the whole request, if its role permits.
            _ => Verdict::route_to(call.least(
                || host.random(),
                |row| match row.role(self.role) {
                    Role::Prefill => f64::NAN,
                    Role::Mixed | Role::Decode => first_token(row),
                },
            )),
        }
    }
}

impl NetKv {
    /// Chooses the decode worker for a prompt that `from` computes; without it all are equally far.
    fn decode(
        &self,
        call: &Call<'_>,
        quote: &Quote<'_>,
        host: &impl Host,
        from: Option<Row<'_>>,
    ) -> Option<LeastCost> {
        let is_decode =
            |row: &Row<'_>| call.request().phase == Phase::Decode || row.role(self.role) == Role::Decode;
        let tier = |row: &Row<'_>| from.map_or(TIERS - 1, |from| self.network.tier(&from, row));
        let flows = self.flows(call, tier);
        let cost = |row: &Row<'_>| {
            let tokens = quote.uncached(matched(quote, row));
            let tier = tier(row);
            self.network.transfer_ms(tier, tokens, flows[tier]) + self.wait_ms(row)
        };
        let has_room = |row: &Row<'_>| self.has_room(row, quote.prompt());
        let any_room = call.rows().any(|row| is_decode(&row) && has_room(&row));
        call.least(
            || host.random(),
            |row| match is_decode(row) && (has_room(row) || !any_room) {
                true => cost(row),
                false => f64::NAN,
            },
        )
    }

    /// Returns the transfers under way in each tier, for one prefill worker: legs whose prompts have not come yet.
    fn flows(&self, call: &Call<'_>, tier: impl Fn(&Row<'_>) -> usize) -> [f64; TIERS] {
        let (mut flows, mut senders) = ([0.0; TIERS], 0.0);
        for row in call.rows() {
            match row.role(self.role) {
                Role::Prefill => senders += 1.0,
                Role::Decode => flows[tier(&row)] += row.get(self.queued),
                Role::Mixed => {}
            }
        }
        flows.map(|flows| flows / f64::max(senders, 1.0))
    }

    /// Returns the wait for a place in the batch and the first step in it, in milliseconds; an unknown step is 0.
    fn wait_ms(&self, row: &Row<'_>) -> f64 {
        let step_ms = row.get(self.tbt_ms).known_or(0.0);
        let over = (row.get(self.requests) + 1.0 - self.batch_slots).max(0.0);
        (over + 1.0) * step_ms
    }

    /// Returns true if the prompt fits into the worker's memory, or the memory is unknown.
    fn has_room(&self, row: &Row<'_>, prompt: f64) -> bool {
        let free = row.get(self.kv_tokens) * (1.0 - row.get(self.kv_usage));
        free.is_nan() || free >= prompt + self.reserve_tokens
    }
}

/// Returns the cached tokens of the prompt; an unknown match counts as 0.
fn matched(quote: &Quote<'_>, row: &Row<'_>) -> f64 {
    quote.matched(row).unwrap_or(0.0)
}

export_policy!(NetKv);

#[cfg(test)]
mod tests;
