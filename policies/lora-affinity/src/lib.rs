//! Scorer: keeps the requests of a LoRA adapter on the workers that have it loaded.
//!
//! Engines report the adapters that they serve, but not those in the slots of the GPU. If a worker has a label with the
//! adapter's name, the label is its score. If no candidate has such a label, the adapter gets a few home workers by
//! hashing, the same for every request. Few engines then have to load it.

use conductor_policy_sdk::{Call, Column, Host, Params, Plan, Row, Scorer, export_scorer, mix};

/// Maximum number of adapters: each needs a column, and columns are limited.
const MOST_ADAPTERS: usize = 48;

/// Scorer: keeps the requests of a LoRA adapter on the workers that have it.
#[derive(Debug)]
pub struct LoraAffinity {
    adapters: Vec<Adapter>,
    homes: usize,
}

#[derive(Debug)]
struct Adapter {
    name: String,
    /// Column of the label with the adapter's name.
    loaded: Column,
    /// Hash of the adapter's name, which determines its homes.
    salt: u64,
}

impl Scorer for LoraAffinity {
    const NAME: &'static str = "lora-affinity";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let names = params
            .about("Adapter names as used in requests (`model`), separated by commas; other requests are not scored.")
            .text("adapters", "");
        let homes = params
            .unit("workers")
            .about("Number of home workers of an adapter if no candidate has a label with its name.")
            .integer("homes", 2, 1..=64);
        let names = || names.split(',').map(str::trim).filter(|name| !name.is_empty());
        if names().count() > MOST_ADAPTERS {
            params.refuse("`adapters` names more than 48");
        }
        plan.name_hash();
        let adapter = |name: &str| Adapter {
            loaded: plan.label(name),
            salt: name.bytes().fold(0, |salt, byte| mix(salt, u64::from(byte))),
            name: name.to_owned(),
        };
        Self {
            adapters: names().take(MOST_ADAPTERS).map(adapter).collect(),
            homes: homes as usize,
        }
    }

    fn score(&self, call: &Call<'_>, host: &impl Host) -> Vec<f64> {
        let model = if self.adapters.is_empty() {
            String::new()
        } else {
            host.model()
        };
        let Some(adapter) = self.adapters.iter().find(|adapter| adapter.name == model) else {
            return call.scores(|_| f64::NAN);
        };
        let mut loaded = call.scores(|row| row.get(adapter.loaded));
        if loaded.iter().all(|label| label.is_nan()) {
            return self.at_home(call, adapter.salt);
        }
        for label in loaded.iter_mut().filter(|label| label.is_nan()) {
            *label = 0.0;
        }
        loaded
    }
}

impl LoraAffinity {
    /// Returns 1 for the workers that rank highest for the adapter and 0 for the others. A worker that leaves
    /// is replaced by one other.
    fn at_home(&self, call: &Call<'_>, salt: u64) -> Vec<f64> {
        let rank = |row: &Row<'_>| call.rank(salt, row);
        let mut ranks: Vec<u64> = call.rows().map(|row| rank(&row)).collect();
        let last = self.homes.min(ranks.len()).saturating_sub(1);
        let last = *ranks.select_nth_unstable_by(last, |a, b| b.cmp(a)).1;
        call.scores(|row| {
            let is_home = rank(row) >= last;
            f64::from(u8::from(is_home))
        })
    }
}

export_scorer!(LoraAffinity);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use conductor_policy_sdk::ConfiguredScorer;
    use conductor_policy_sdk::testing::Scenario;

    use super::*;

    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn scores(fleet: &mut Scenario, params: &str) -> Vec<f64> {
        let scorer = ConfiguredScorer::<LoraAffinity>::new(params).unwrap();
        fleet
            .scores(&scorer)
            .into_iter()
            .map(|(_, score)| score)
            .collect()
    }

    #[test]
    fn a_label_marks_the_workers_of_an_adapter() {
        let mut fleet = Scenario::new(NAMES);
        fleet
            .set_model("sql")
            .set("b", "label.sql", 1.0)
            .set("d", "label.sql", 0.6)
            .set("e", "label.chat", 1.0);
        let params = r#"{"adapters": "sql, chat"}"#;
        assert_eq!(scores(&mut fleet, params), [0.0, 1.0, 0.0, 0.6, 0.0]);
        fleet.set_model("chat");
        assert_eq!(scores(&mut fleet, params), [0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn without_labels_an_adapter_has_a_few_stable_homes() {
        let mut fleet = Scenario::new(NAMES);
        let homes = |fleet: &mut Scenario, model: &str| {
            fleet.set_model(model);
            let names = fleet
                .ids()
                .iter()
                .map(|id| NAMES[*id as usize])
                .collect::<Vec<_>>();
            let scores = scores(fleet, r#"{"adapters": "sql,chat,code"}"#);
            let at_home = names.into_iter().zip(scores).filter(|(_, score)| *score == 1.0);
            at_home.map(|(name, _)| name).collect::<Vec<_>>()
        };
        let of_all = ["sql", "chat", "code"].map(|model| homes(&mut fleet, model));
        assert!(of_all.iter().all(|homes| homes.len() == 2), "{of_all:?}");
        assert!(of_all[0] != of_all[1] || of_all[1] != of_all[2], "{of_all:?}");
        assert_eq!(homes(&mut fleet, "sql"), of_all[0], "for the next request too");
        let (stays, leaves) = (of_all[0][0], of_all[0][1]);
        let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != leaves).collect();
        fleet.offer(&others);
        let after = homes(&mut fleet, "sql");
        assert!(after.len() == 2 && after.contains(&stays), "{after:?}");
    }

    #[test]
    fn homes_do_not_depend_on_worker_ids() {
        let homes = |names: [&'static str; 5]| {
            let mut fleet = Scenario::new(names);
            fleet.set_model("sql");
            let scores = scores(&mut fleet, r#"{"adapters": "sql"}"#);
            let at_home = names.into_iter().zip(scores).filter(|(_, score)| *score == 1.0);
            at_home.map(|(name, _)| name).collect::<BTreeSet<_>>()
        };
        assert_eq!(homes(NAMES), homes(["d", "a", "e", "c", "b"]));
    }

    #[test]
    fn has_no_opinion_on_requests_for_no_adapter() {
        let mut fleet = Scenario::new(NAMES);
        fleet.set_model("base").set("a", "label.base", 1.0);
        for params in ["{}", r#"{"adapters": "sql"}"#] {
            let scores = scores(&mut fleet, params);
            assert!(scores.iter().all(|score| score.is_nan()), "{scores:?}");
        }
    }

    #[test]
    fn a_fleet_smaller_than_the_number_of_homes_consists_of_homes() {
        let mut fleet = Scenario::new(["a", "b"]);
        fleet.set_model("sql");
        assert_eq!(
            scores(&mut fleet, r#"{"adapters": "sql", "homes": 8}"#),
            [1.0, 1.0]
        );
    }
}
