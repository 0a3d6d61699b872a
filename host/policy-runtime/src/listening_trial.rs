//! What a policy does that is told events and ticks, before it may: a batch such as the router tells, and batches such as none does.

use std::sync::Arc;
use std::time::Duration;

use routing::{DecisionQueries, EventKind, NoAnswers, Role, WorkerId};

use crate::bindings::events::Event;
use crate::budget::{Budget, thread_cpu_time};
use crate::fault::Failure;
use crate::guest::Decision;
use crate::instance::Instance;
use crate::listener::{BatchWorkers, Wishes};
use crate::load_error::LoadError;
use crate::made_up;

/// Most events of a batch.
const BATCH: usize = 256;
/// Workers of the usual batch.
const WORKERS: u32 = 4;
/// When it happens.
const NOW_US: u64 = 1_000_000;

/// Something other than a decision that a policy was asked to do.
#[derive(Debug)]
pub struct Chore {
    /// What it was told.
    pub about: &'static str,
    /// What came of it.
    pub outcome: Result<(), Failure>,
    /// CPU time of the call.
    pub took: Duration,
}

/// The router's own trial: every kind it wants, told once, and a tick.
pub(crate) fn probe(instance: &mut Instance, wishes: &Wishes, budget: Budget) -> Result<(), LoadError> {
    if wishes.subscription.is_some() {
        let batch: Vec<Event> = kinds(wishes).map(|kind| usual(kind, 0)).collect();
        let outcome = instance.handle(&batch, fleet(), budget);
        outcome.map_err(LoadError::ProbeEvents)?;
    }
    if wishes.ticks {
        let outcome = instance.tick(nobody(), budget);
        outcome.map_err(LoadError::ProbeTick)?;
    }
    Ok(())
}

/// Everything it might be told, each on a fresh instance.
pub(crate) fn rehearse(
    wishes: &Wishes,
    budget: Budget,
    mut fresh: impl FnMut() -> Result<Instance, Failure>,
) -> Vec<Chore> {
    let mut chores = Vec::new();
    let mut chore = |about, act: &dyn Fn(&mut Instance) -> Result<(), Failure>| {
        let begun = fresh();
        let start = thread_cpu_time();
        let outcome = begun.and_then(|mut instance| act(&mut instance));
        let took = thread_cpu_time().saturating_sub(start);
        chores.push(Chore { about, outcome, took });
    };
    if wishes.subscription.is_some() {
        let many = batch(wishes, usual);
        chore("256 events of a small fleet", &|instance| {
            instance.handle(&many, fleet(), budget)
        });
        let odd = batch(wishes, strange);
        chore(
            "256 events with unknown workers, kinds and numbers",
            &|instance| instance.handle(&odd, nobody(), budget),
        );
        chore("no event at all", &|instance| {
            instance.handle(&[], nobody(), budget)
        });
    }
    if wishes.ticks {
        chore("two ticks", &|instance| {
            instance.tick(nobody(), budget)?;
            instance.tick(nobody(), budget).map(drop)
        });
    }
    chores
}

/// The kinds that happen, as the policy numbers them.
fn kinds(wishes: &Wishes) -> impl Iterator<Item = u32> + Clone {
    let subscription = wishes.subscription.iter();
    subscription.flat_map(|wanted| {
        EventKind::ALL
            .into_iter()
            .filter_map(|kind| wanted.position(kind))
    })
}

fn batch(wishes: &Wishes, event: fn(u32, usize) -> Event) -> Vec<Event> {
    let kinds = kinds(wishes).cycle().take(BATCH).enumerate();
    kinds.map(|(at, kind)| event(kind, at)).collect()
}

fn usual(kind: u32, at: usize) -> Event {
    Event {
        kind,
        at_us: NOW_US - 1000 + at as u64,
        seq: at as u64 / 3 + 1,
        session: at.is_multiple_of(2).then_some(at as u64 / 8),
        worker: at as u32 % WORKERS,
        number: (at * 7 % 500) as f64,
    }
}

fn strange(kind: u32, at: usize) -> Event {
    const NUMBERS: [f64; 6] = [f64::NAN, f64::INFINITY, -1.0, f64::MAX, 0.0, f64::NEG_INFINITY];
    Event {
        // One that it did not ask for, now and then.
        kind: if at % 16 == 15 { u32::MAX } else { kind },
        at_us: if at.is_multiple_of(2) { 0 } else { u64::MAX },
        seq: u64::MAX - at as u64,
        session: at.is_multiple_of(3).then_some(u64::MAX),
        worker: u32::MAX - at as u32,
        number: NUMBERS[at % NUMBERS.len()],
    }
}

fn fleet() -> Decision {
    let workers: Vec<_> = (0..WORKERS)
        .map(|id| made_up::worker(WorkerId(id), Role::Mixed))
        .collect();
    let workers: Arc<dyn DecisionQueries> = Arc::new(BatchWorkers::of(workers.iter()));
    Decision::without_request(workers, NOW_US)
}

fn nobody() -> Decision {
    Decision::without_request(Arc::new(NoAnswers), NOW_US)
}
