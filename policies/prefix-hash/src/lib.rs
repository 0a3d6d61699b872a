//! Policy: consistent hashing of prompt prefixes with bounded loads.

use conductor_policy_sdk::{
    BoundedLoadHash, Call, Host, Params, Plan, Policy, PrefixKey, Verdict, export_policy,
};

/// Policy: consistent hashing of prompt prefixes.
#[derive(Debug)]
pub struct PrefixHash {
    hash: BoundedLoadHash,
    prefix: PrefixKey,
}

impl Policy for PrefixHash {
    const NAME: &'static str = "prefix-hash";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            hash: BoundedLoadHash::configure(params, plan),
            prefix: PrefixKey::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        self.hash.route(call, host, || {
            self.prefix.of(call, host).or(call.request().session)
        })
    }
}

export_policy!(PrefixHash);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn configured() -> Configured<PrefixHash> {
        Configured::new("{}").unwrap()
    }

    #[test]
    fn prompts_that_begin_alike_share_a_worker_regardless_of_session() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        for document in 0..40 {
            fleet.session(Some(document));
            let home = fleet.prompt(&[document, 1]).route(&policy).unwrap().to_owned();
            fleet.session(Some(document + 99));
            assert_eq!(fleet.prompt(&[document, 2, 3]).route(&policy), Some(&*home));
        }
    }

    #[test]
    fn a_system_prompt_of_all_does_not_send_everything_to_one_worker() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        let system = [7; 20];
        let mut counts = [0_u32; 4];
        for request in 0..1_000 {
            let home = fleet
                .prompt(&[&system[..], &[request; 20]].concat())
                .route(&policy);
            counts[NAMES.iter().position(|name| home == Some(*name)).unwrap()] += 1;
        }
        // The first hundred requests or so, before the system prompt is known as common, go to one worker.
        assert!(
            counts.iter().all(|count| (150..400).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn with_unknown_tokens_sessions_stay_together_and_other_requests_go_to_the_least_loaded() {
        let policy = configured();
        let mut fleet = Scenario::new(NAMES);
        let home = fleet.session(Some(5)).route(&policy).unwrap().to_owned();
        for name in NAMES {
            fleet.set(name, "load.requests", if name == home { 11.0 } else { 10.0 });
        }
        assert_eq!(fleet.route(&policy), Some(&*home));
        assert_ne!(fleet.session(None).route(&policy), Some(&*home));
    }
}
