//! Where a key is at home: rendezvous hashing by weight, with bounded loads.
//!
//! ```text
//! home(key) = the candidate within its bound with the least  -ln(u) / weight,   u = hash(key, name) in (0, 1)
//! bound     = ceil(load-factor * (sum of requests + 1) * weight / sum of weights)
//! within    : requests + 1 <= bound
//! ```
//!
//! Each key ranks the workers in an order of its own and goes to the first that has room, so that a worker that joins, leaves or is full
//! moves no keys but its own, and those of a full worker go to all the others. By names: every router has the same order.
//!
//! Bounded loads: Mirrokni, Thorup and Zadimoghaddam (2016); rendezvous hashing: Thaler and Ravishankar (1998). On a ring, as in KubeAI's
//! CHWBL, all that a full worker has no room for goes to the next one, and a list of points has to be kept.

use crate::call::{Call, Known, Phase};
use crate::hash::mix;
use crate::host::Host;
use crate::load::Load;
use crate::params::Params;
use crate::plan::{Column, Plan};
use crate::verdict::Verdict;

/// Where the router lays out the numbers, and how much more than its share a worker may have.
#[derive(Debug, Clone, Copy)]
pub struct Homes {
    name: Column,
    load: Load,
    factor: f64,
}

impl Homes {
    /// Reads the parameter `load-factor`, and asks for the numbers.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        Self {
            name: plan.column("worker.name-hash"),
            load: Load::requests(plan),
            factor: params
                .about("A worker has no room for a request that makes it so many times its share of all requests in flight, rounded up.")
                .number("load-factor", 1.25, 1.0..=100.0),
        }
    }

    /// Sends a key home; requests without one go to the least loaded, and so do decode legs, for which nothing is kept.
    pub fn send(&self, call: &Call<'_>, host: &impl Host, key: impl FnOnce() -> Option<u64>) -> Verdict {
        let is_decode = call.request().phase == Phase::Decode;
        let key = if is_decode { None } else { key() };
        match key.and_then(|key| self.of(call, key)) {
            Some(row) => Verdict::Route { row, score: f64::NAN },
            None => Verdict::route_to(self.load.least(call, host)),
        }
    }

    /// The row of a key's home. Of whole requests and a factor of 1 or more, some worker always has room; there is none only where
    /// the router says nonsense.
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

/// A hash as a number between 0 and 1, neither of them.
fn unit(hash: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 52) as f64;
    ((hash >> 12) as f64 + 0.5) / STEPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Configured, Policy};
    use crate::testing::Scenario;

    /// Sends each session home.
    struct Sessions(Homes);

    impl Policy for Sessions {
        const NAME: &'static str = "sessions";
        const VERSION: &'static str = "1";

        fn configure(params: &mut Params, plan: &mut Plan) -> Self {
            Self(Homes::configure(params, plan))
        }

        fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
            self.0.send(call, host, || call.request().session)
        }
    }

    const NAMES: [&str; 4] = ["a", "b", "c", "d"];

    fn configured(params: &str) -> Configured<Sessions> {
        Configured::new(params).unwrap()
    }

    /// Where sessions 0 to 999 go.
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
    fn one_that_leaves_moves_its_own_keys_only_and_to_all_others() {
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
        // Of 30 + n + 1 requests in flight, each of four may have 1.25 quarters: with 14, ceil(14.06) there is room for a 15th.
        fleet.set(&home, "load.requests", 14.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
        fleet.set(&home, "load.requests", 15.0);
        let next = fleet.route(&policy).unwrap().to_owned();
        assert_ne!(next, home);
        assert_eq!(fleet.route(&configured(r#"{"load-factor": 2}"#)), Some(&*home));
        // A worker of twice the weight may have twice as much.
        fleet.set(&home, "worker.weight", 2.0);
        assert_eq!(fleet.route(&policy), Some(&*home));
    }

    #[test]
    fn one_key_alone_is_spread_as_evenly_as_the_bound_says() {
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
    fn without_a_key_and_for_decode_legs_the_least_loaded_is_taken() {
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
