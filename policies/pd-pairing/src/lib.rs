//! Policy: the prefill and decode worker with the least joint priced time to first token, or one worker for
//! both legs if that costs no more.
//!
//! `cost(p, d) = own(p) + transfer(p, d) + crowding(d)` is compared with `cost(w) = own(w)`, in prompt
//! tokens. README.md derives each term. The policy never rejects or holds a request.

use std::cell::LazyCell;

use conductor_policy_sdk::{Call, Host, Pairing, Params, Plan, Policy, Verdict, export_policy};

/// Policy: the least priced pair, or one worker for both legs.
#[derive(Debug)]
pub struct PdPairing(Pairing);

impl Policy for PdPairing {
    const NAME: &'static str = "pd-pairing";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self(Pairing::configure(params, plan))
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let costs = self.0.costs(call);
        let salt = LazyCell::new(|| call.request().session.unwrap_or_else(|| host.random()));
        self.0.place(call, costs, &costs.own(call), || *salt).verdict()
    }
}

export_policy!(PdPairing);
