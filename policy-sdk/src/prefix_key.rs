//! A key of the prompt's beginning, by which prompts that begin alike meet on one worker.
//!
//! A key that more requests have than one worker can take is worth nothing: with a system prompt that all share, everything would be
//! at home on one worker. So the key is taken of the shortest beginning that is not *common*: that no more than one candidate's fair share
//! of the requests have. Which beginnings are common is learnt from the requests themselves, for each list of candidates.

use crate::call::Call;
use crate::frequent::Frequent;
use crate::host::Host;
use crate::params::Params;
use crate::plan::{Plan, RequestNumber};

/// The lengths that the router has keys of, in tokens.
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

/// Requests with a key before it can be common: of fewer, too little is known.
const LEAST: u32 = 16;

/// Where the router lays out the keys, and how one of them is chosen.
#[derive(Debug, Clone)]
pub struct PrefixKey {
    /// Shortest first; of a fixed length, that one.
    keys: Vec<RequestNumber>,
}

impl PrefixKey {
    /// Reads the parameter `key-tokens`, and asks for the keys.
    #[must_use]
    pub fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let fixed = LENGTHS.map(|(length, name)| (length, Some(name)));
        let fixed = params
            .unit("tokens")
            .about("Length of the beginning that requests are told apart by; `auto`: the shortest that not too many share.")
            .choice("key-tokens", ("auto", None), &fixed);
        let names = LENGTHS.iter().map(|(_, name)| *name);
        let names = names.filter(|name| fixed.is_none_or(|fixed| fixed == *name));
        Self {
            keys: names.map(|name| plan.request(name)).collect(),
        }
    }

    /// The request's key; none where its tokens are not known, or are fewer than a block.
    ///
    /// To be asked once for a request, since what it answers is counted.
    #[must_use]
    pub fn of(&self, call: &Call<'_>, host: &impl Host) -> Option<u64> {
        let mut keys = self.keys.iter().map(|key| call.number(*key));
        let mut key = keys.find(|key| !key.is_nan())?;
        if self.keys.len() > 1 {
            let place = call.state_key("common");
            let mut frequent = host
                .state(&place)
                .map_or_else(Frequent::default, |bytes| Frequent::read(&bytes));
            let requests = u64::from(frequent.request());
            let workers = call.ids().len() as u64;
            let mut is_common = |key: f64| {
                let count = frequent.note(key.to_bits());
                count >= LEAST && u64::from(count) * workers > requests
            };
            while is_common(key) {
                // Of a prompt that ends before, the longer keys are the same.
                let Some(longer) = keys.find(|longer| *longer != key && !longer.is_nan()) else {
                    break;
                };
                key = longer;
            }
            // What another instance counts at the same moment is lost, and so it is where the state is full: either makes the counts late, not wrong.
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

    /// Answers the key as a score.
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
    fn a_beginning_that_all_share_is_passed_over() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        let system = [9; 8];
        let mut of = |turn: u64, more: &[u64]| key(&mut fleet, &keys, &[&system[..], &[turn], more].concat());
        for request in 0..200 {
            of(request, &[request; 9]);
        }
        // 512 tokens are the same for all; the next length tells conversations apart, and does not change with their turns.
        assert_ne!(of(1_000, &[1; 7]), of(2_000, &[1; 7]));
        assert_eq!(of(1_000, &[1; 7]), of(1_000, &[1; 30]));
    }

    #[test]
    fn each_of_several_common_beginnings_is_passed_over_and_the_rest_are_not() {
        let (mut fleet, keys) = (fleet(), keys("{}"));
        let mut of = |system: u64, turn: u64| key(&mut fleet, &keys, &[system, system, turn, 5]);
        for request in 0..600 {
            // Two systems with three tenths of the requests each: more than one of four workers can take; a third with a tenth.
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
    fn what_is_no_longer_common_is_a_key_again() {
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
    fn lists_of_candidates_learn_apart() {
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
