//! Policy: every eligible worker in turn.
//!
//! The turn is a counter in the router's state, so that all instances of the policy share it. Each list of
//! candidates has a counter of its own: with one for all, two pools asked by turns would each see every other
//! turn, and with two workers each always the same one.

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Verdict, export_policy};

/// Every eligible worker in turn; weights are ignored.
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
        // Refused only where something else wrote to the key; the request's number is a turn as well.
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
    fn two_pools_asked_by_turns_each_use_all_their_workers() {
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
    fn a_list_that_comes_and_goes_stays_even() {
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
    fn has_no_parameters_and_says_so() {
        let error = Configured::<RoundRobin>::new(r#"{"weight": 1}"#).unwrap_err();
        assert_eq!(error, "unknown parameter `weight`\nthe policy has no parameters");
    }
}
