//! Trial of a policy's event listener and timer: a typical batch, and batches that no router sends.

use std::sync::Arc;
use std::time::Duration;

use routing::{DecisionQueries, EventKind, NoAnswers, Role, WorkerId};

use crate::bindings::events::Event;
use crate::budget::{CallBudget, thread_cpu_time};
use crate::fault::Failure;
use crate::guest::DecisionData;
use crate::instance::Instance;
use crate::listener::{BatchWorkers, OptionalCalls};
use crate::load_error::LoadError;
use crate::synthetic;

/// Most events of a batch.
const BATCH: usize = 256;
/// Workers of the typical batch.
const WORKERS: u32 = 4;
/// Time of the batch.
const NOW_US: u64 = 1_000_000;

/// A call other than a decision, and its result.
#[derive(Debug)]
pub struct ListenerCheck {
    /// The call's input.
    pub about: &'static str,
    /// Result of the call.
    pub outcome: Result<(), Failure>,
    /// CPU time of the call.
    pub took: Duration,
}

/// Runs the router's own trial: one event of every subscribed kind, and a timer call.
pub(crate) fn probe(
    instance: &mut Instance,
    optional_calls: &OptionalCalls,
    budget: CallBudget,
) -> Result<(), LoadError> {
    if optional_calls.subscription.is_some() {
        let batch: Vec<Event> = kinds(optional_calls).map(|kind| usual(kind, 0)).collect();
        let outcome = instance.handle(&batch, fleet(), budget);
        outcome.map_err(LoadError::ProbeEvents)?;
    }
    if optional_calls.ticks {
        let outcome = instance.tick(no_request(), budget);
        outcome.map_err(LoadError::ProbeTick)?;
    }
    Ok(())
}

/// Runs every possible call, each on a new instance.
pub(crate) fn rehearse(
    optional_calls: &OptionalCalls,
    budget: CallBudget,
    mut fresh: impl FnMut() -> Result<Instance, Failure>,
) -> Vec<ListenerCheck> {
    let mut listener_checks = Vec::new();
    let mut check = |about, act: &dyn Fn(&mut Instance) -> Result<(), Failure>| {
        let begun = fresh();
        let start = thread_cpu_time();
        let outcome = begun.and_then(|mut instance| act(&mut instance));
        let took = thread_cpu_time().saturating_sub(start);
        listener_checks.push(ListenerCheck { about, outcome, took });
    };
    if optional_calls.subscription.is_some() {
        let many = batch(optional_calls, usual);
        check("256 events of a small fleet", &|instance| {
            instance.handle(&many, fleet(), budget)
        });
        let odd = batch(optional_calls, strange);
        check(
            "256 events with unknown workers, kinds and numbers",
            &|instance| instance.handle(&odd, no_request(), budget),
        );
        check("no event at all", &|instance| {
            instance.handle(&[], no_request(), budget)
        });
    }
    if optional_calls.ticks {
        check("two ticks", &|instance| {
            instance.tick(no_request(), budget)?;
            instance.tick(no_request(), budget).map(drop)
        });
    }
    listener_checks
}

/// Returns the kinds that occur, in the policy's numbering.
fn kinds(optional_calls: &OptionalCalls) -> impl Iterator<Item = u32> + Clone {
    let subscription = optional_calls.subscription.iter();
    subscription.flat_map(|wanted| {
        EventKind::ALL
            .into_iter()
            .filter_map(|kind| wanted.position(kind))
    })
}

fn batch(optional_calls: &OptionalCalls, event: fn(u32, usize) -> Event) -> Vec<Event> {
    let kinds = kinds(optional_calls).cycle().take(BATCH).enumerate();
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
        // Sometimes a kind that it did not subscribe to.
        kind: if at % 16 == 15 { u32::MAX } else { kind },
        at_us: if at.is_multiple_of(2) { 0 } else { u64::MAX },
        seq: u64::MAX - at as u64,
        session: at.is_multiple_of(3).then_some(u64::MAX),
        worker: u32::MAX - at as u32,
        number: NUMBERS[at % NUMBERS.len()],
    }
}

fn fleet() -> DecisionData {
    let workers: Vec<_> = (0..WORKERS)
        .map(|id| synthetic::worker(WorkerId(id), Role::Mixed))
        .collect();
    let workers: Arc<dyn DecisionQueries> = Arc::new(BatchWorkers::of(workers.iter()));
    DecisionData::without_request(workers, NOW_US)
}

fn no_request() -> DecisionData {
    DecisionData::without_request(Arc::new(NoAnswers), NOW_US)
}
