//! Policy: round robin over the eligible workers.
//!
//! The counter is in the router's state, shared by all instances of the policy. Each list of candidates has
//! its own counter. With a common one, two pools that alternate would each use every other value; with two
//! workers each, always the same worker.

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Verdict, export_policy};

/// Policy: round robin; weights are ignored.
#[derive(Debug)]
pub struct RoundRobin;

impl Policy for RoundRobin {
    const NAME: &'static str = "round-robin";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(_: &mut Params, _: &mut Plan) -> Self {
        Self
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let ids = call.ids();
        // The addition fails only if other code wrote to the key; the request's number is a valid counter
        // too.
        let turn = host.add_state(&call.state_key("turn"), 1);
        let turn = turn.map_or(call.request().seq, i64::cast_unsigned);
        match turn.checked_rem(ids.len() as u64) {
            Some(row) => Verdict::Route {
                row: row as usize,
                score: f64::NAN,
            },
            None => Verdict::Pass,
        }
    }
}

export_policy!(RoundRobin);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    fn round_robin() -> Configured<RoundRobin> {
        Configured::new("{}").unwrap()
    }

    fn routes(fleet: &mut Scenario, count: usize) -> Vec<String> {
        let policy = round_robin();
        (0..count)
            .map(|_| fleet.route(&policy).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn takes_every_worker_in_turn_over_all_instances() {
        let mut fleet = Scenario::new(["a", "b", "c"]);
        let mut seen = routes(&mut fleet, 2);
        seen.extend(routes(&mut fleet, 4));
        let next = |name: &str| {
            if name == "c" {
                'a'
            } else {
                (name.as_bytes()[0] + 1) as char
            }
        };
        for pair in seen.windows(2) {
            assert_eq!(pair[1], next(&pair[0]).to_string(), "{seen:?}");
        }
    }

    #[test]
    fn two_pools_called_alternately_each_use_all_their_workers() {
        let policy = round_robin();
        let mut fleet = Scenario::new(["a", "b", "c", "d"]);
        let mut counts = std::collections::BTreeMap::<String, u32>::new();
        for _ in 0..10 {
            for pool in [["a", "b"], ["c", "d"]] {
                let name = fleet.offer(&pool).route(&policy).unwrap();
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        assert!(counts.values().all(|&count| count == 5), "{counts:?}");
    }

    #[test]
    fn a_list_of_candidates_that_returns_stays_even() {
        let policy = round_robin();
        let mut fleet = Scenario::new(["a", "b", "c"]);
        let mut counts = [0_u32; 3];
        for request in 0..300 {
            let list: &[&str] = if request % 2 == 0 {
                &["a", "b", "c"]
            } else {
                &["a", "c"]
            };
            let name = fleet.offer(list).route(&policy).unwrap();
            counts[usize::from(name.as_bytes()[0] - b'a')] += 1;
        }
        assert_eq!(counts, [125, 50, 125]);
    }

    #[test]
    fn a_parameter_is_rejected_because_there_are_none() {
        let error = Configured::<RoundRobin>::new(r#"{"weight": 1}"#).unwrap_err();
        assert_eq!(error, "unknown parameter `weight`\nthe policy has no parameters");
    }
}
