//! Policy: the less loaded of two random workers (power of two choices).

use conductor_policy_sdk::{Call, Host, Params, Plan, Policy, Verdict, WorkerLoad, export_policy};

/// Policy: the less loaded of two random workers.
#[derive(Debug)]
pub struct PowerOfTwo {
    load: WorkerLoad,
}

impl Policy for PowerOfTwo {
    const NAME: &'static str = "power-of-two";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            load: WorkerLoad::configure(params, plan),
        }
    }

    fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
        let workers = call.ids().len() as u64;
        let first = host.random() % workers.max(1);
        // Any other worker.
        let second = (first + 1 + host.random() % workers.saturating_sub(1).max(1)) % workers.max(1);
        let load = self.load.with(call);
        let drawn = call
            .rows()
            .filter(|row| [first, second].contains(&(row.index() as u64)));
        Verdict::route_to(call.least_among(drawn.map(|row| (row, load(&row))), || host.random()))
    }
}

export_policy!(PowerOfTwo);

#[cfg(test)]
mod tests {
    use conductor_policy_sdk::Configured;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn configured(params: &str) -> Configured<PowerOfTwo> {
        Configured::new(params).unwrap()
    }

    /// Returns the number of requests of each worker, out of 6,000.
    fn counts(fleet: &mut Scenario, params: &str) -> [u32; 4] {
        let policy = configured(params);
        let mut counts = [0; 4];
        for _ in 0..6_000 {
            let name = fleet.route(&policy).unwrap();
            counts[usize::from(name.as_bytes()[0] - b'a')] += 1;
        }
        counts
    }

    #[track_caller]
    fn check(counts: [u32; 4], expected: [u32; 4]) {
        for (count, expected) in counts.iter().zip(expected) {
            assert!(count.abs_diff(expected) < 200, "{counts:?}");
        }
    }

    #[test]
    fn every_pair_is_equally_likely_and_its_less_loaded_worker_is_taken() {
        let mut fleet = Scenario::new(NAMES);
        for (requests, name) in NAMES.iter().enumerate() {
            fleet.set(name, "load.requests", requests as f64);
        }
        // Of six pairs three contain a, two more contain b, and one more contains c.
        check(counts(&mut fleet, "{}"), [3_000, 2_000, 1_000, 0]);
    }

    #[test]
    fn ties_are_distributed_evenly() {
        check(counts(&mut Scenario::new(NAMES), "{}"), [1_500; 4]);
    }

    #[test]
    fn loads_are_compared_by_tokens_if_enabled() {
        let mut fleet = Scenario::new(NAMES);
        for (requests, name) in NAMES.iter().enumerate() {
            fleet.set(name, "load.requests", requests as f64).set(
                name,
                "load.prefill-tokens",
                1_000.0 / (requests + 1) as f64,
            );
        }
        check(
            counts(&mut fleet, r#"{"load": "tokens"}"#),
            [0, 1_000, 2_000, 3_000],
        );
    }

    #[test]
    fn a_single_worker_is_taken() {
        assert_eq!(Scenario::new(["a"]).route(&configured("{}")), Some("a"));
    }
}
