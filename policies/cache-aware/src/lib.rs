//! Policy: the worker with the least priced time to first token, in prompt tokens.
//!
//! `cost = (Q + (x + u) * (1 + price * k) + d * decoding) / speed`: queued work, the request's own work, and
//! the delay that this work adds for waiting requests. It has no thresholds and no modes. README.md derives
//! each term.

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Price, SessionHome, Verdict, export_policy};

/// Policy: the least priced time to first token.
#[derive(Debug)]
pub struct CacheAware {
    price: Price,
    home: SessionHome,
}

impl Policy for CacheAware {
    const NAME: &'static str = "cache-aware";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            price: Price::configure(params, plan),
            home: SessionHome::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let quote = self.price.quote(call, |_| true);
        let matches = self.home.matches(call, quote);
        let least = call.least(
            || call.request().session.unwrap_or_else(|| host.random()),
            |row| quote.cost(row, matches.get(row)),
        );
        Verdict::route_to(least)
    }
}

export_policy!(CacheAware);
