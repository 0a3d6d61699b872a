//! Policy: a random worker, by weight or uniformly.

use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Policy, Row, Verdict, export_policy};

/// Policy: a random worker.
#[derive(Debug)]
pub struct Random {
    /// Column of weights; none for uniform chances.
    weight: Option<Column>,
}

impl Policy for Random {
    const NAME: &'static str = "random";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let is_weighted = params
            .about("Probability by weight; else uniform.")
            .flag("weighted", true);
        Self {
            weight: is_weighted.then(|| plan.column("worker.weight")),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let chance = |row: &Row<'_>| self.weight.map_or(1.0, |weight| row.get(weight));
        let all: f64 = call.rows().map(|row| chance(&row)).sum();
        let mut left = share(host.random()) * all;
        for row in call.rows() {
            left -= chance(&row);
            // The last worker also absorbs rounding errors.
            if left < 0.0 || row.index() + 1 == call.ids().len() {
                return Verdict::Route {
                    row: row.index(),
                    score: f64::NAN,
                };
            }
        }
        Verdict::Pass
    }
}

/// Maps a random number to 0..1, excluding 1.
fn share(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

export_policy!(Random);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    /// Returns the number of requests to `a`, `b` (weight 2) and `c` (weight 3), out of 3,000.
    fn counts(params: &str) -> [u32; 3] {
        let policy = Configured::<Random>::new(params).unwrap();
        let mut fleet = Scenario::new(["a", "b", "c"]);
        fleet
            .set("b", "worker.weight", 2.0)
            .set("c", "worker.weight", 3.0)
            .set("a", "load.requests", 1_000.0);
        let mut counts = [0; 3];
        for _ in 0..3_000 {
            let name = fleet.route(&policy).unwrap();
            counts[usize::from(name.as_bytes()[0] - b'a')] += 1;
        }
        counts
    }

    #[track_caller]
    fn check(params: &str, expected: [u32; 3]) {
        let counts = counts(params);
        for (count, expected) in counts.iter().zip(expected) {
            assert!(count.abs_diff(expected) < 100, "{counts:?}");
        }
    }

    #[test]
    fn chances_go_by_weight_regardless_of_load() {
        check("{}", [500, 1_000, 1_500]);
    }

    #[test]
    fn chances_are_equal_if_configured() {
        check(r#"{"weighted": false}"#, [1_000; 3]);
    }

    #[test]
    fn a_single_worker_takes_all() {
        let policy = Configured::<Random>::new("{}").unwrap();
        let mut fleet = Scenario::new(["a"]);
        for weight in [1.0, 0.0, f64::NAN] {
            assert_eq!(fleet.set("a", "worker.weight", weight).route(&policy), Some("a"));
        }
    }
}
