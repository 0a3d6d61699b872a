//! Tests of a policy that receives events, and that ticks, beside its decisions.

use std::sync::Arc;
use std::time::Duration;

use policy_runtime::{LoadError, PolicyState, WasmPolicy};
use routing::{
    Event, EventKind, EventKinds, EventListener, FaultKind, Policy, Verdict, Worker, WorkerId, WorkerSpec,
};

use crate::components::{component, decide, engine, load, loaded, loaded_over, settings};

const LISTENER: &str = include_str!("../wat/listens.wat");

fn listener(policy: &WasmPolicy) -> Arc<dyn EventListener> {
    let mut listeners = policy.listeners();
    assert_eq!(listeners.len(), 1);
    listeners.remove(0)
}

fn event(kind: EventKind, number: f64) -> Event {
    let spec = WorkerSpec::mixed("gone-by-now", "http://gone");
    Event {
        kind,
        at_us: 5,
        seq: 1,
        session: Some(2),
        worker: Arc::new(Worker::new(WorkerId(3), spec)),
        number,
    }
}

fn count(state: &PolicyState, key: &str) -> i64 {
    state.add(key, 0).unwrap()
}

#[test]
fn events_are_reported_by_the_position_of_their_kind_and_what_is_learnt_is_in_the_state() {
    let state = Arc::<PolicyState>::default();
    let policy = loaded_over(&engine(), LISTENER, &state);
    assert_eq!(state.keys(), 0, "a trial moves nothing");
    let listener = listener(&policy);
    let kinds = EventKinds::NONE
        .with(EventKind::Dispatched)
        .with(EventKind::Failed);
    assert_eq!((listener.kinds(), listener.policy()), (kinds, "tested"));
    let batch = [
        event(EventKind::Dispatched, 10.0),
        event(EventKind::Failed, 668.0),
        event(EventKind::Failed, f64::NAN),
        // The policy did not subscribe to this one.
        event(EventKind::Left, 0.0),
    ];
    listener.handle(&batch, 77).unwrap();
    assert_eq!((count(&state, "told-0"), count(&state, "told-2")), (1, 2));
    assert_eq!(count(&state, "name-length"), "gone-by-now".len() as i64);
    assert_eq!(count(&state, "now"), 77);
}

#[test]
fn a_tick_is_had_and_its_pause_is_bounded() {
    let state = Arc::<PolicyState>::default();
    let policy = loaded_over(&engine(), LISTENER, &state);
    let listener = listener(&policy);
    assert!(listener.ticks());
    assert_eq!(listener.tick(1).unwrap(), Duration::from_millis(100));
    assert_eq!(count(&state, "ticks"), 1);
}

#[test]
fn a_handler_that_traps_or_spins_costs_its_instance_and_no_decision() {
    let state = Arc::<PolicyState>::default();
    let policy = loaded_over(&engine(), LISTENER, &state);
    let listener = listener(&policy);
    for (number, kind) in [(666.0, FaultKind::Trap), (667.0, FaultKind::Deadline)] {
        let fault = listener
            .handle(&[event(EventKind::Failed, number)], 0)
            .unwrap_err();
        assert_eq!((fault.kind, &*fault.policy), (kind, "tested"), "{fault}");
        listener.handle(&[event(EventKind::Failed, 0.0)], 0).unwrap();
    }
    assert!(matches!(decide(&policy, 1, &[0.0]), Ok(Verdict::Route(_))));
    assert_eq!(
        policy.stats().faults(FaultKind::Trap),
        0,
        "counted where events are"
    );
    listener.rest();
    listener.handle(&[event(EventKind::Failed, 0.0)], 0).unwrap();
    assert_eq!(count(&state, "told-2"), 5);
}

#[test]
fn a_policy_that_wants_nothing_has_no_listener() {
    assert!(
        loaded(&engine(), include_str!("../wat/least.wat"))
            .listeners()
            .is_empty()
    );
}

#[test]
fn a_subscription_to_an_unknown_event_is_refused_unless_it_is_optional() {
    let other = LISTENER.replace("moon.full?", "moon.full!");
    let error = load(&engine(), &component(&other)).unwrap_err();
    assert!(matches!(error, LoadError::Events(_)), "{error}");
    let message = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        message.contains("`moon.full!`") && message.contains("worker.joined"),
        "{message}"
    );
}

#[test]
fn a_handler_that_fails_its_trial_is_refused_and_check_reports_what_else_it_fails_at() {
    let traps = LISTENER.replace("(global.set $top (i32.const 8192))", "unreachable");
    let error = load(&engine(), &component(&traps)).unwrap_err();
    assert!(matches!(error, LoadError::ProbeEvents(_)), "{error}");
    // Only a number that is not known, which the router's own trial has none of.
    let odd = LISTENER.replace(
        "(f64.eq (local.get $number) (f64.const 666))",
        "(f64.ne (local.get $number) (local.get $number))",
    );
    let rehearsal = engine()
        .rehearse("tested", &component(&odd), &settings(), |_| {})
        .unwrap();
    assert!(rehearsal.refused.is_none());
    let failed = rehearsal
        .listener_checks
        .iter()
        .filter(|check| check.outcome.is_err());
    let failed: Vec<_> = failed.map(|check| check.about).collect();
    assert_eq!(failed, ["256 events with unknown workers, kinds and numbers"]);
    assert_eq!(rehearsal.listener_checks.len(), 4);
    let events = rehearsal.description.events.unwrap();
    assert_eq!(events, ["request.dispatched", "moon.full?", "request.failed"]);
}

#[test]
fn every_kind_is_in_the_reference() {
    let reference = include_str!("../../../../wit/README.md");
    for kind in EventKind::ALL {
        assert!(
            reference.contains(&format!("\n| `{}` | ", kind.as_str())),
            "{kind:?}"
        );
    }
}
