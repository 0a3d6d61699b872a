//! Policy: consistent hashing with bounded loads, by session, or by prompt prefix for requests without a
//! session.

use conductor_policy_sdk::{
    BoundedLoadHash, Call, Host, Params, Plan, Policy, PrefixKey, Verdict, export_policy,
};

/// Policy: consistent hashing of sessions with bounded loads.
#[derive(Debug)]
pub struct ConsistentHashBoundedLoad {
    hash: BoundedLoadHash,
    prefix: PrefixKey,
}

impl Policy for ConsistentHashBoundedLoad {
    const NAME: &'static str = "consistent-hash-bounded-load";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            hash: BoundedLoadHash::configure(params, plan),
            prefix: PrefixKey::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        self.hash.route(call, host, || {
            call.request().session.or_else(|| self.prefix.of(call, host))
        })
    }
}

export_policy!(ConsistentHashBoundedLoad);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn configured() -> Configured<ConsistentHashBoundedLoad> {
        Configured::new("{}").unwrap()
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    #[test]
    fn a_session_has_one_home_whatever_its_prompts() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        let mut homes = std::collections::BTreeSet::new();
        for session in 0..40 {
            fleet.session(Some(session));
            let home = fleet.prompt(&[1, 2]).route(&policy).unwrap().to_owned();
            assert_eq!(fleet.prompt(&[session + 50]).route(&policy), Some(&*home));
            homes.insert(home);
        }
        assert_eq!(homes.len(), NAMES.len());
    }

    #[test]
    fn without_a_session_prompts_that_begin_alike_meet() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        for document in 0..40 {
            let home = fleet.prompt(&[document, 1]).route(&policy).unwrap().to_owned();
            assert_eq!(fleet.prompt(&[document, 2, 3]).route(&policy), Some(&*home));
        }
    }

    #[test]
    fn a_full_home_is_avoided_while_it_is_full() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        let home = fleet.session(Some(3)).route(&policy).unwrap().to_owned();
        fleet.set(&home, "load.requests", 8.0);
        let other = fleet.route(&policy).unwrap().to_owned();
        assert_ne!(other, home);
        assert_eq!(
            fleet.route(&policy),
            Some(&*other),
            "the second home is stable too"
        );
        fleet.set(&home, "load.requests", 0.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
    }

    #[test]
    fn a_request_without_session_and_prefix_goes_to_the_least_loaded() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        for busy in ["a", "b", "d"] {
            fleet.set(busy, "load.requests", 1.0);
        }
        assert_eq!(fleet.route(&policy), Some("c"));
    }
}
