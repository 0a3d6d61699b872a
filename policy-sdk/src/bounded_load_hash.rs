//! Consistent hashing with bounded loads: weighted rendezvous hashing that skips full workers.
//!
//! ```text
//! home(key) = the candidate within its bound with the least  -ln(u) / weight,   u = hash(key, name) in (0, 1)
//! bound     = ceil(load-factor * (sum of requests + 1) * weight / sum of weights)
//! within    : requests + 1 <= bound
//! ```
//!
//! Each key ranks the workers in its own order and goes to the first one below its bound. A worker that
//! joins, leaves or is full moves only its own keys, and these spread over all other workers. The hash is
//! over names, so every router computes the same order.
//!
//! Bounded loads: Mirrokni, Thorup and Zadimoghaddam (2016). Rendezvous hashing: Thaler and Ravishankar
//! (1998). A hash ring, as in KubeAI's CHWBL, moves the overflow of a full worker to one neighbour and needs
//! a list of points.

use crate::call::{Call, OptionalNumber, Phase};
use crate::hash::mix;
use crate::host::Host;
use crate::load::WorkerLoad;
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::verdict::Verdict;

/// Configured hash: the columns, and the bound as a factor of a worker's fair share.
#[derive(Debug, Clone, Copy)]
pub struct BoundedLoadHash {
    name: Column,
    load: WorkerLoad,
    factor: f64,
}

impl BoundedLoadHash {
    /// Reads the parameter `load-factor` and requests the columns.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            name: plan.column("worker.name-hash"),
            load: WorkerLoad::requests(plan),
            factor: params
                .about("Bound of a worker's requests in flight, as a factor of its fair share, rounded up.")
                .number("load-factor", 1.25, 1.0..=100.0),
        }
    }

    /// Routes a key to its home worker. Requests without a key go to the least loaded worker. So do decode
    /// legs, because they reuse no cache.
    pub fn route(&self, call: &Call<'_>, host: &impl Host, key: impl FnOnce() -> Option<u64>) -> Verdict {
        let is_decode = call.request().phase == Phase::Decode;
        let key = if is_decode { None } else { key() };
        match key.and_then(|key| self.of(call, key)) {
            Some(row) => Verdict::Route { row, score: f64::NAN },
            None => Verdict::route_to(self.load.least(call, host)),
        }
    }

    /// Returns the row of a key's home worker. For integer loads and a factor of at least 1 some worker is
    /// always below its bound. Returns none only if the router's numbers are inconsistent.
    fn of(&self, call: &Call<'_>, key: u64) -> Option<usize> {
        let (mut requests, mut weights) = (1.0, 0.0);
        for row in call.rows() {
            requests += self.load.amount(&row).known_or(0.0);
            weights += self.load.weight(&row);
        }
        let each = self.factor * requests / weights;
        let home = call.least(
            || key,
            |row| {
                let weight = self.load.weight(row);
                if self.load.amount(row).known_or(0.0) + 1.0 > (each * weight).ceil() {
                    return f64::NAN;
                }
                -unit(mix(key, row.get(self.name) as u64)).ln() / weight
            },
        );
        home.map(|home| home.row)
    }
}

/// Maps a hash to a number strictly between 0 and 1.
fn unit(hash: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 52) as f64;
    ((hash >> 12) as f64 + 0.5) / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Configured, Policy};
    use crate::testing::Scenario;

    /// Test policy: routes each session to its home.
    struct Sessions(BoundedLoadHash);

    impl Policy for Sessions {
        const NAME: &'static str = "sessions";
        const VERSION: &'static str = "1";

        fn configure(params: &mut Params, plan: &mut Plan) -> Self {
            Self(BoundedLoadHash::configure(params, plan))
        }

        fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
            self.0.route(call, host, || call.request().session)
        }
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn configured(params: &str) -> Configured<Sessions> {
        Configured::new(params).unwrap()
    }

    /// Returns the workers of sessions 0 to 999.
    fn homes(fleet: &mut Scenario, policy: &Configured<Sessions>) -> Vec<String> {
        let homes = (0..1_000).map(|session| {
            let home = fleet.session(Some(session)).route(policy);
            home.unwrap().to_owned()
        });
        homes.collect()
    }

    fn at(homes: &[String], worker: &str) -> usize {
        homes.iter().filter(|home| *home == worker).count()
    }

    #[test]
    fn keys_are_shared_by_weight() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(NAMES);
        let even = homes(&mut fleet, &policy);
        assert!(NAMES.iter().all(|name| (200..300).contains(&at(&even, name))));
        fleet.set("a", "worker.weight", 3.0);
        let heavy = homes(&mut fleet, &policy);
        assert!((450..550).contains(&at(&heavy, "a")), "{}", at(&heavy, "a"));
        let moved = even.iter().zip(&heavy).filter(|(before, after)| before != after);
        assert!(moved.clone().count() > 200 && moved.clone().all(|(_, after)| after == "a"));
    }

    #[test]
    fn a_leaving_worker_moves_only_its_own_keys_and_spreads_them_over_all_others() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(NAMES);
        let before = homes(&mut fleet, &policy);
        let after = homes(fleet.offer(&["d", "c", "a"]), &policy);
        let moved: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before != after)
            .collect();
        assert!(moved.iter().all(|(before, _)| *before == "b"));
        assert_eq!(moved.len(), at(&before, "b"));
        for other in ["a", "c", "d"] {
            let taken = moved.iter().filter(|(_, after)| *after == other).count();
            assert!(
                (moved.len() / 5..moved.len() / 2).contains(&taken),
                "{other}: {taken}"
            );
        }
    }

    #[test]
    fn a_full_worker_takes_no_more_than_its_bound() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(NAMES);
        let home = fleet.session(Some(7)).route(&policy).unwrap().to_owned();
        let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != home).collect();
        for other in &others {
            fleet.set(other, "load.requests", 10.0);
        }
        // With 14 requests at home, 45 are in flight with the new one: ceil(1.25 * 45 / 4) = 15 leaves room
        // for one more.
        fleet.set(&home, "load.requests", 14.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
        fleet.set(&home, "load.requests", 15.0);
        let next = fleet.route(&policy).unwrap().to_owned();
        assert_ne!(next, home);
        assert_eq!(fleet.route(&configured(r#"{"load-factor": 2}"#)), Some(&*home));
        // A worker of twice the weight has twice the bound.
        fleet.set(&home, "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
    }

    #[test]
    fn a_single_key_is_spread_within_the_bound() {
        for (params, most) in [
            (r#"{"load-factor": 1}"#, 25.0),
            ("{}", 32.0),
            (r#"{"load-factor": 100}"#, 100.0),
        ] {
            let policy = configured(params);
            let mut fleet = Scenario::new(NAMES);
            let mut counts = [0.0_f64; 4];
            for _ in 0..100 {
                let worker = fleet.session(Some(1)).route(&policy).unwrap().to_owned();
                counts[NAMES.iter().position(|name| *name == worker).unwrap()] += 1.0;
                fleet.add(&worker, "load.requests", 1.0);
            }
            assert_eq!(
                counts.into_iter().fold(0.0, f64::max),
                most,
                "{params}: {counts:?}"
            );
        }
    }

    #[test]
    fn requests_without_a_key_and_decode_legs_go_to_the_least_loaded() {
        let policy = configured("{}");
        let mut fleet = Scenario::new(NAMES);
        for (requests, name) in NAMES.iter().enumerate() {
            fleet.set(name, "load.requests", (3 - requests) as f64);
        }
        assert_eq!(fleet.session(None).route(&policy), Some("d"));
        for session in 0..20 {
            fleet.session(Some(session)).phase(Phase::Decode);
            assert_eq!(fleet.route(&policy), Some("d"));
        }
    }
}
