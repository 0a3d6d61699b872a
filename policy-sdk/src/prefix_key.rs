//! Prefix key: a hash of the prompt's first tokens, for policies that send equal beginnings to one worker.
//!
//! A key shared by more requests than one worker can serve is useless: a common system prompt would send
//! every request to one worker. The key therefore covers the shortest beginning that is not *common*. A
//! beginning is common if more than one candidate's fair share of the requests have it. Common beginnings are
//! learnt from the requests, separately for each list of candidates.

use crate::call::Call;
use crate::heavy_hitters::HeavyHitters;
use crate::host::Host;
use crate::params::Params;
use crate::plan::{Plan, RequestNumber};

/// Lengths for which the router computes keys, in tokens.
const LENGTHS: [(&str, &str); 9] = [
    ("64", "prefix.key-64"),
    ("128", "prefix.key-128"),
    ("256", "prefix.key-256"),
    ("512", "prefix.key-512"),
    ("1024", "prefix.key-1024"),
    ("2048", "prefix.key-2048"),
    ("4096", "prefix.key-4096"),
    ("8192", "prefix.key-8192"),
    ("16384", "prefix.key-16384"),
];

/// Minimum count of a common key; smaller samples are not significant.
const LEAST: u32 = 16;

/// Configured key: the numbers of the requested lengths.
#[derive(Debug, Clone)]
pub struct PrefixKey {
    /// Keys, shortest first; one entry if the length is fixed.
    keys: Vec<RequestNumber>,
}

impl PrefixKey {
    /// Reads the parameter `key-tokens` and requests the keys.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let fixed = LENGTHS.map(|(length, name)| (length, Some(name)));
        let fixed = params
            .unit("tokens")
            .about("Length of the hashed prompt beginning; `auto`: the shortest that is not shared by too many requests.")
            .choice("key-tokens", ("auto", None), &fixed);
        let names = LENGTHS.iter().map(|(_, name)| *name);
        let names = names.filter(|name| fixed.is_none_or(|fixed| fixed == *name));
        Self {
            keys: names.map(|name| plan.request(name)).collect(),
        }
    }

    /// Returns the request's key; none if its tokens are unknown or fewer than one block.
    ///
    /// Call it once for each request, because each call is counted.
    #[must_use]
    pub fn of(&self, call: &Call<'_>, host: &impl Host) -> Option<u64> {
        let mut keys = self.keys.iter().map(|key| call.number(*key));
        let mut key = keys.find(|key| !key.is_nan())?;
        if self.keys.len() > 1 {
            let place = call.state_key("common");
            let mut frequent = host
                .state(&place)
                .map_or_else(HeavyHitters::default, |bytes| HeavyHitters::read(&bytes));
            let requests = u64::from(frequent.request());
            let workers = call.ids().len() as u64;
            let mut is_common = |key: f64| {
                let count = frequent.note(key.to_bits());
                count >= LEAST && u64::from(count) * workers > requests
            };
            while is_common(key) {
                // All keys longer than the prompt are equal.
                let Some(longer) = keys.find(|longer| *longer != key && !longer.is_nan()) else {
                    break;
                };
                key = longer;
            }
            // Concurrent updates of other instances, or a full state, lose this count. Lost counts delay the
            // detection of common keys but cause no wrong ones.
            let _ = host.set_state(&place, &frequent.bytes());
        }
        Some(key.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Configured, Policy};
    use crate::testing::Scenario;
    use crate::verdict::Verdict;

    /// Test policy whose score is the key.
    struct Keys(PrefixKey);

    impl Policy for Keys {
        const NAME: &'static str = "keys";
        const VERSION: &'static str = "1";

        fn configure(params: &mut Params, plan: &mut Plan) -> Self {
            Self(PrefixKey::configure(params, plan))
        }

        fn schedule(&self, call: &Call<'_>, host: &impl Host) -> Verdict {
            self.0.of(call, host).map_or(Verdict::Pass, |key| Verdict::Route {
                row: 0,
                score: f64::from_bits(key),
            })
        }
    }

    fn keys(params: &str) -> Configured<Keys> {
        Configured::new(params).unwrap()
    }

    fn key(fleet: &mut Scenario, keys: &Configured<Keys>, prompt: &[u64]) -> Option<u64> {
        match fleet.prompt(prompt).decide(keys) {
            Verdict::Route { score, .. } => Some(score.to_bits()),
            _ => None,
        }
    }

    fn fleet() -> Scenario {
        Scenario::new(["a", "b", "c", "d"])
    }

    #[test]
    fn a_beginning_shared_by_all_is_skipped() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        let system = [9; 8];
        let mut of = |turn: u64, more: &[u64]| key(&mut fleet, &keys, &[&system[..], &[turn], more].concat());
        for request in 0..200 {
            of(request, &[request; 9]);
        }
        // The first 512 tokens are equal for all. The next length separates conversations and is stable over
        // their turns.
        assert_ne!(of(1_000, &[1; 7]), of(2_000, &[1; 7]));
        assert_eq!(of(1_000, &[1; 7]), of(1_000, &[1; 30]));
    }

    #[test]
    fn each_common_beginning_is_skipped_and_others_are_not() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        let mut of = |system: u64, turn: u64| key(&mut fleet, &keys, &[system, system, turn, 5]);
        for request in 0..600 {
            // Two systems have three tenths of the requests each, more than one of four workers can take. A
            // third has one tenth.
            match request % 10 {
                0..3 => of(1, request),
                3..6 => of(2, request),
                6 => of(3, request),
                _ => of(request + 100, request),
            };
        }
        assert_ne!(of(1, 8_001), of(1, 8_002));
        assert_ne!(of(2, 8_001), of(2, 8_002));
        assert_eq!(of(3, 8_001), of(3, 8_002));
    }

    #[test]
    fn a_beginning_that_is_no_longer_common_is_a_key_again() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        for request in 0..5_000 {
            key(&mut fleet, &keys, &[1, request]);
        }
        assert_ne!(key(&mut fleet, &keys, &[1, 1]), key(&mut fleet, &keys, &[1, 2]));
        for request in 0..12_000 {
            key(&mut fleet, &keys, &[request + 9, request]);
        }
        assert_eq!(key(&mut fleet, &keys, &[1, 1]), key(&mut fleet, &keys, &[1, 2]));
    }

    #[test]
    fn lists_of_candidates_learn_separately() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        for request in 0..100 {
            key(&mut fleet, &keys, &[1, request]);
        }
        assert_ne!(key(&mut fleet, &keys, &[1, 1]), key(&mut fleet, &keys, &[1, 2]));
        fleet.offer(&["c", "d"]);
        assert_eq!(key(&mut fleet, &keys, &[1, 1]), key(&mut fleet, &keys, &[1, 2]));
    }

    #[test]
    fn a_fixed_length_learns_nothing() {
        let (mut fleet, keys) = (fleet(), keys(r#"{"key-tokens": "128"}"#));
        let first = key(&mut fleet, &keys, &[1, 1, 1]);
        for request in 0..200 {
            assert_eq!(key(&mut fleet, &keys, &[1, 1, request]), first);
        }
        assert_ne!(key(&mut fleet, &keys, &[1, 2, 1]), first);
        assert_eq!(keys.plan().request_features(), ["prefix.key-128"]);
    }

    #[test]
    fn a_prompt_without_a_block_has_no_key() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        assert_eq!(key(&mut fleet, &keys, &[]), None);
        assert!(key(&mut fleet, &keys, &[1]).is_some());
    }
}
