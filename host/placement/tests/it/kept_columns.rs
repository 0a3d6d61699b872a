//! Columns kept from one decision to the next, against those of a new layout.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use placement::{CacheKnowledge, Candidates, Eligibility, FleetVersion};
use routing::{
    CANDIDATE_CATALOGUE, CostLine, CostSample, EngineReport, LoadLease, LoadTotals, Policy, PolicyVersions,
    Role,
};

use crate::fixed::{FixedView, route, scripted};

const WORKERS: usize = 6;
const STEPS: usize = 20_000;

/// Ids of the candidates that a policy was called with, and bits of their numbers.
type SeenBits = Arc<Mutex<Vec<u64>>>;

/// Random numbers (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn tokens(&mut self) -> u32 {
        u32::try_from(self.below(9_000)).unwrap()
    }

    fn time(&mut self) -> Duration {
        Duration::from_micros(1 + self.below(3_000_000))
    }
}

/// Returns a policy with these columns that routes to the first candidate, and the numbers that it sees.
fn observed(columns: &[&str]) -> (Arc<dyn Policy>, SeenBits) {
    let seen = SeenBits::default();
    let seeing = Arc::clone(&seen);
    let policy = scripted(columns, move |input| {
        let ids = input.ids.iter().map(|id| id.0.into());
        let bits = input.numbers.iter().map(|number| number.to_bits());
        *seeing.lock().unwrap() = ids.chain(bits).collect();
        route(0, None)
    });
    (policy, seen)
}

/// Changes the load of a worker, or a request's share of it.
fn change_load(view: &FixedView, leases: &mut Vec<LoadLease>, dice: &mut Dice) {
    let worker = usize::try_from(dice.below(WORKERS as u64)).unwrap();
    let load = view.workers[worker].worker.load();
    let lease = match leases.len() {
        0 => None,
        open => Some(usize::try_from(dice.below(open as u64)).unwrap()),
    };
    match (dice.below(11), lease) {
        (0, _) => leases.push(
            load.book(dice.tokens(), dice.tokens())
                .with_best_match(dice.tokens()),
        ),
        (1, _) => leases.push(load.book_fetched(dice.tokens())),
        (2, _) => leases.push(load.book_awaiting(dice.tokens())),
        (3, _) => load.set_others(LoadTotals {
            requests: dice.tokens(),
            decoding: dice.tokens(),
            prefill_tokens: dice.below(1 << 20),
            prompt_tokens: dice.below(1 << 20),
            decoding_tokens: dice.below(1 << 20),
        }),
        (4, _) => {
            let report = EngineReport {
                running: f64::from(dice.tokens()),
                waiting: f64::NAN,
                kv_usage: 0.5,
                kv_tokens: f64::from(dice.tokens()),
            };
            load.record_engine_report(report, dice.below(1_000));
        }
        (5, _) => {
            let lines = [
                CostLine::Prefill,
                CostLine::Transfer,
                CostLine::Decode,
                CostLine::Fetched,
            ];
            let line = lines[usize::try_from(dice.below(4)).unwrap()];
            let numbers = [dice.tokens(), dice.tokens(), dice.tokens()].map(|tokens| tokens as f32);
            load.learn_elsewhere(&CostSample { line, numbers });
        }
        (6, Some(lease)) => leases[lease].first_token(dice.time()),
        (7, Some(lease)) => leases[lease].take_for_computed(),
        (8, Some(lease)) => leases[lease].prompt_cached(|| Some(dice.tokens().into())),
        (9, Some(lease)) => leases[lease].decoded(dice.below(500), dice.time()),
        (10, Some(lease)) => drop(leases.swap_remove(lease)),
        _ => {}
    }
}

/// Changes the request, the time, or the candidates.
fn change_view(view: &mut FixedView, dice: &mut Dice) {
    let worker = usize::try_from(dice.below(WORKERS as u64)).unwrap();
    match dice.below(6) {
        0 => view.prompt_tokens = dice.tokens(),
        1 => view.now_us += dice.below(5_000),
        2 => {
            let known = [
                CacheKnowledge::Live,
                CacheKnowledge::Assumed,
                CacheKnowledge::Unknown,
            ];
            view.workers[worker].knowledge = known[usize::try_from(dice.below(3)).unwrap()];
        }
        3 => {
            let all = [
                Eligibility::Healthy,
                Eligibility::Returning,
                Eligibility::OutOfService,
            ];
            view.workers[worker].eligibility = all[usize::try_from(dice.below(3)).unwrap()];
        }
        // The first one is never missing.
        _ if worker == 0 => {}
        4 => view.workers[worker].drains ^= true,
        _ => view.workers[worker].serves ^= true,
    }
}

#[test]
fn kept_columns_are_bit_for_bit_those_of_a_new_layout() {
    let mut names: Vec<_> = CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name).collect();
    names.extend(["label.zone", "engine.watts?"]);
    let (all, seen) = observed(&names);
    let (some, seen_of_some) = observed(&["load.requests", "prefix.any-tokens"]);
    let mut view = FixedView::of(&[Role::Mixed; WORKERS], Arc::clone(&all));
    let (mut kept, mut leases, mut dice) = (Candidates::default(), Vec::new(), Dice(0x9E37_79B9_7F4A_7C15));
    let fleet = FleetVersion::unique();
    for step in 0..STEPS {
        if dice.below(50) == 0 {
            for worker in &mut view.workers {
                (worker.serves, worker.drains) = (true, false);
                worker.eligibility = Eligibility::Healthy;
            }
        }
        for _ in 0..dice.below(4) {
            change_load(&view, &mut leases, &mut dice);
        }
        if dice.below(4) == 0 {
            change_view(&mut view, &mut dice);
        }
        let is_all = dice.below(3) > 0;
        let (policy, seen) = if is_all {
            (&all, &seen)
        } else {
            (&some, &seen_of_some)
        };
        view.policy = PolicyVersions::only(Arc::clone(policy));
        view.fleet = Some(fleet);
        view.decide_with(&mut kept);
        let of_kept = std::mem::take(&mut *seen.lock().unwrap());
        view.fleet = None;
        view.decide();
        let new = std::mem::take(&mut *seen.lock().unwrap());
        assert!(!new.is_empty());
        assert_eq!(of_kept, new, "step {step}");
    }
}

#[test]
fn columns_of_another_fleet_are_not_taken() {
    let (policy, seen) = observed(&["worker.name-hash"]);
    let mut kept = Candidates::default();
    let mut numbers = |view: &mut FixedView| {
        view.fleet = Some(FleetVersion::unique());
        view.decide_with(&mut kept);
        seen.lock().unwrap().clone()
    };
    let mut one = FixedView::of(&[Role::Mixed; 2], Arc::clone(&policy));
    let mut other = FixedView::of(&[Role::Mixed; 2], Arc::clone(&policy));
    other.workers.reverse();
    assert_ne!(numbers(&mut one), numbers(&mut other));
}
