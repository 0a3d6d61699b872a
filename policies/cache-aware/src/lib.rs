//! Policy: the worker with the least priced time to first token, in prompt tokens.
//!
//! `cost = (Q + (x + u) * (1 + price * k) + d * decoding) / speed`: what is queued there, what this request adds,
//! and what that addition costs those who wait behind it. No thresholds, no modes; README.md derives each term.

use std::cell::OnceCell;

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Price, Quote, Row, Verdict};
use conductor_policy_sdk::{WorkerId, export_policy, mix};

/// The worker with the least priced time to first token.
#[derive(Debug)]
pub struct CacheAware {
    price: Price,
    /// Share of the prompt that a session's home is taken to hold where the index knows nothing.
    session_share: f64,
}

/// What is the same for all candidates of a call.
struct Prompt<'a> {
    call: &'a Call<'a>,
    quote: Quote<'a>,
    /// Found when first needed: with a live index it never is.
    home: OnceCell<Option<WorkerId>>,
}

impl Policy for CacheAware {
    const NAME: &'static str = "cache-aware";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            price: Price::configure(params, plan),
            session_share: params
                .unit("share")
                .about(
                    "Part of the prompt that a session's home is taken to hold where the match is unknown.",
                )
                .number("session-share", 0.75, 0.0..=1.0),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let prompt = Prompt {
            call,
            quote: self.price.quote(call, |_| true),
            home: OnceCell::new(),
        };
        let least = call.least(
            || call.request().session.unwrap_or_else(|| host.random()),
            |row| prompt.quote.cost(row, self.matched(row, &prompt)),
        );
        Verdict::route_to(least)
    }
}

impl CacheAware {
    /// Tokens of the prompt that need not be computed there; where that is not known, what a session's home is taken to hold.
    fn matched(&self, row: &Row<'_>, prompt: &Prompt<'_>) -> f64 {
        prompt.quote.matched(row).unwrap_or_else(|| {
            let at_home = prompt.home() == Some(row.id());
            match at_home {
                true => self.session_share * prompt.quote.prompt(),
                false => 0.0,
            }
        })
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
