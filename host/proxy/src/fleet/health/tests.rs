//! Tests of the health state machine: single claims, and invariants over any course of events.

use std::time::Duration;

use super::AttemptToken::{Plain, Trial};
use super::state::State;
use super::{AttemptToken, Finding, HealthSpec, HealthStatus, ProbeSpec};
use crate::base::label::EjectionCause;

fn rules() -> HealthSpec {
    HealthSpec {
        probe: Some(ProbeSpec::default()),
        ..HealthSpec::default()
    }
}

/// Makes a worker in service.
fn state() -> State {
    in_service(rules())
}

fn in_service(rules: HealthSpec) -> State {
    let mut state = State::new(rules);
    state.reached(0);
    state
}

/// As [`WorkerHealth`](super::WorkerHealth) has it.
fn settled(
    state: &mut State,
    rests: Option<EjectionCause>,
    seen: (u64, u64),
    may_eject: bool,
) -> Option<EjectionCause> {
    rests.or_else(|| may_eject.then(|| state.eject(seen.0, seen.1)).flatten())
}

fn failed(state: &mut State, seen: (u64, u64), may_eject: bool) -> Option<EjectionCause> {
    let rests = state.failed(Plain, seen.0, seen.1);
    settled(state, rests, seen, may_eject)
}

fn server_error(
    state: &mut State,
    dispatch: AttemptToken,
    seen: (u64, u64),
    may_eject: bool,
) -> Option<EjectionCause> {
    let rests = state.server_error(dispatch, seen.0, seen.1);
    settled(state, rests, seen, may_eject)
}

/// Lets the worker fail, and fail its trials, so often.
fn outage(state: &mut State, rests: u32) -> u64 {
    let mut now = 0;
    state.failed(Plain, now, 0);
    for _ in 1..rests {
        while state.status(now) == HealthStatus::Ejected {
            now += 1_000;
        }
        assert_eq!(state.begin(now), Trial);
        assert_eq!(state.failed(Trial, now, 0), Some(EjectionCause::Failures));
    }
    now
}

#[test]
fn a_worker_never_reached_is_pending() {
    let mut state = State::new(rules());
    assert_eq!(state.status(3_600_000), HealthStatus::Pending);
    assert!(state.status(0).is_out() && !state.is_plain());
}

#[test]
fn the_first_good_probe_or_answer_brings_a_pending_worker_into_service() {
    let mut probed = State::new(rules());
    assert_eq!(probed.probed(Finding::Unclear, 1), None);
    assert_eq!(probed.status(1), HealthStatus::Pending);
    assert_eq!(probed.probed(Finding::Well, 2), None);
    assert_eq!(probed.status(2), HealthStatus::Serving);
    assert!(probed.is_plain() && probed.admits(7, 2), "in full at once");

    let mut probed = State::new(HealthSpec::default());
    assert_eq!(probed.begin(5), Plain);
    probed.answered(Plain, 6);
    assert_eq!(probed.status(6), HealthStatus::Serving);
    assert!(probed.is_plain());
}

#[test]
fn a_bare_connection_brings_a_pending_worker_into_service_where_probes_are_off() {
    let mut state = State::new(HealthSpec::default());
    assert_eq!(state.probed(Finding::Unwell, 1), None);
    assert_eq!(state.status(1), HealthStatus::Pending);
    state.probed(Finding::Well, 2);
    assert_eq!(state.status(2), HealthStatus::Serving);
}

#[test]
fn failures_of_a_pending_worker_are_no_ejection_and_keep_it_pending() {
    let mut state = State::new(HealthSpec {
        failures: 1,
        server_errors: 1,
        ..rules()
    });
    for now in 0..100 {
        assert_eq!(failed(&mut state, (now, 0), true), None);
        assert_eq!(server_error(&mut state, Plain, (now, 0), true), None);
        assert_eq!(state.probed(Finding::Unwell, now), None);
        assert_eq!(state.status(now), HealthStatus::Pending);
    }
}

#[test]
fn failed_checks_before_it_was_reached_do_not_count_afterwards() {
    let mut state = State::new(rules());
    for now in 0..10 {
        state.probed(Finding::Unwell, now);
    }
    state.answered(Plain, 10);
    assert_eq!(state.probed(Finding::Unwell, 11), None);
    assert_eq!(state.probed(Finding::Unwell, 12), None);
    assert_eq!(state.probed(Finding::Unwell, 13), Some(EjectionCause::Probe));
}

#[test]
fn no_way_leads_back_to_pending() {
    let mut state = state();
    state.failed(Plain, 0, 0);
    for now in 0..10 {
        state.probed(Finding::Unwell, now);
    }
    state.set_rules(&HealthSpec::default());
    assert_ne!(state.status(1), HealthStatus::Pending);
}

#[test]
fn every_state_out_of_service_has_a_reason_a_beginning_and_a_next_try() {
    let mut pending = State::new(rules());
    let report = pending.report(7);
    assert_eq!(
        (report.status, report.since_ms, report.is_checked),
        (HealthStatus::Pending, 0, false)
    );
    assert!(report.reason.unwrap().contains("not reached yet"));
    pending.note("connection refused".into());
    pending.probed(Finding::Unwell, 8);
    let report = pending.report(9);
    assert!(report.is_checked);
    assert_eq!(
        report.reason.unwrap(),
        "never reached; the last failure: connection refused"
    );
    pending.probed(Finding::Well, 10);
    let report = pending.report(11);
    assert_eq!(
        (report.status, report.since_ms, report.reason),
        (HealthStatus::Serving, 10, None)
    );

    let mut state = state();
    state.note("closed".into());
    state.failed(Plain, 20, 0);
    let report = state.report(21);
    assert_eq!(
        (report.status, report.since_ms, report.next_ms),
        (HealthStatus::Ejected, 20, Some(1_020))
    );
    assert_eq!(
        report.reason.unwrap(),
        "a request got no answer; the last failure: closed"
    );
    let over = state.report(1_020);
    assert_eq!((over.status, over.since_ms), (HealthStatus::Serving, 20));
    assert!(over.reason.unwrap().contains("the next request tries it"));
    state.begin(1_020);
    state.failed(Trial, 1_021, 0);
    assert_eq!(state.report(1_022).since_ms, 20, "the same outage");
    state.answered(Plain, 1_500);
    let back = state.report(1_600);
    assert_eq!(
        (back.status, back.since_ms, back.next_ms),
        (HealthStatus::Returning, 1_500, Some(11_500))
    );
    assert_eq!(state.report(11_500).reason, None);
    assert_eq!(state.report(11_500).since_ms, 11_500);

    state.passed_over(2_000, 12_000);
    let busy = state.report(12_001);
    assert_eq!(
        (busy.status, busy.since_ms, busy.next_ms),
        (HealthStatus::Busy, 12_000, Some(14_000))
    );
    for now in 20_000..20_003 {
        state.probed(Finding::Unwell, now);
    }
    state.note("`GET /health` got 503".into());
    let unhealthy = state.report(20_010);
    assert_eq!(
        (unhealthy.status, unhealthy.since_ms),
        (HealthStatus::Unhealthy, 20_002)
    );
    let reason = unhealthy.reason.unwrap();
    assert_eq!(
        reason,
        "3 health probes failed in a row; the last failure: `GET /health` got 503"
    );
}

#[test]
fn rests_grow_from_one_second_to_thirty() {
    let lengths = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    for (rests, length) in (1..).zip(lengths) {
        let mut state = state();
        let now = outage(&mut state, rests);
        assert_eq!(
            state.status(now + length - 1),
            HealthStatus::Ejected,
            "rest {rests}"
        );
        assert_eq!(state.status(now + length), HealthStatus::Serving, "rest {rests}");
    }
}

#[test]
fn failures_of_one_outage_count_once() {
    let mut state = state();
    assert_eq!(state.failed(Plain, 0, 0), Some(EjectionCause::Failures));
    assert_eq!(state.failed(Plain, 1, 0), None);
    assert_eq!(state.status(1_000), HealthStatus::Serving);
}

#[test]
fn one_trial_at_a_time_decides_when_the_rest_is_over() {
    let mut state = state();
    assert_eq!(state.begin(0), Plain);
    state.failed(Plain, 0, 0);
    assert_eq!(state.begin(1_000), Trial);
    assert_eq!(state.status(1_001), HealthStatus::Ejected, "the others keep away");
    assert_eq!(state.begin(1_001), Plain);
    assert_eq!(state.failed(Trial, 1_002, 0), Some(EjectionCause::Failures));
    assert_eq!(state.begin(3_002), Trial);
    state.answered(Trial, 3_003);
    assert_eq!(state.status(3_003), HealthStatus::Returning);
    assert_eq!(state.status(13_003), HealthStatus::Serving);
    assert!(state.is_plain());
}

#[test]
fn more_failures_in_a_row_are_borne_where_the_rules_allow_them() {
    let mut state = in_service(HealthSpec {
        failures: 3,
        ..rules()
    });
    assert_eq!(state.failed(Plain, 0, 0), None);
    assert_eq!(state.failed(Plain, 1, 0), None);
    state.answered(Plain, 2);
    assert_eq!(state.failed(Plain, 3, 0), None);
    assert_eq!(state.failed(Plain, 4, 0), None);
    assert_eq!(state.failed(Plain, 5, 0), Some(EjectionCause::Failures));
}

#[test]
fn a_share_of_server_errors_takes_out_unless_too_many_are_out_already() {
    let burst = |may_eject| {
        let mut state = state();
        let mut ejected = None;
        // One good answer follows each bad one.
        for seen in 0..20_u64 {
            ejected = ejected.or(server_error(&mut state, Plain, (seen, seen), may_eject));
        }
        ejected
    };
    assert_eq!(burst(true), Some(EjectionCause::Share));
    assert_eq!(burst(false), None);
}

#[test]
fn few_errors_among_many_answers_take_no_worker_out() {
    let mut state = state();
    for seen in 0..1_000 {
        assert_eq!(server_error(&mut state, Plain, (seen, 2 * seen), true), None);
    }
}

#[test]
fn an_earlier_attempt_does_not_end_an_ejection_for_server_errors() {
    let mut state = in_service(HealthSpec {
        server_errors: 2,
        ..rules()
    });
    server_error(&mut state, Plain, (0, 0), true);
    assert_eq!(
        server_error(&mut state, Plain, (1, 0), true),
        Some(EjectionCause::ServerErrors)
    );
    state.answered(Plain, 2);
    assert_eq!(state.status(3), HealthStatus::Ejected);
    assert_eq!(state.begin(1_001), Trial);
    assert_eq!(
        server_error(&mut state, Trial, (1_002, 0), true),
        Some(EjectionCause::ServerErrors)
    );
    assert_eq!(state.begin(3_002), Trial);
    state.answered(Trial, 3_003);
    assert_eq!(state.status(3_003), HealthStatus::Returning);
}

#[test]
fn a_worker_that_came_back_is_offered_a_rising_share() {
    let mut state = state();
    state.failed(Plain, 0, 0);
    state.begin(1_000);
    state.answered(Trial, 1_000);
    let mut share_at = |now| (0..1_000).filter(|seq| state.admits(*seq, now)).count();
    let shares: Vec<_> = [1_000, 1_500, 6_000, 10_000].map(&mut share_at).into();
    for (share, expected) in shares.iter().zip([100, 100, 500, 900]) {
        assert!(share.abs_diff(expected) <= 5, "{shares:?}");
    }
    assert_eq!(share_at(11_000), 1_000);
}

#[test]
fn a_failure_while_it_comes_back_goes_on_where_the_last_rest_was() {
    let mut state = state();
    state.failed(Plain, 0, 0);
    state.begin(1_000);
    state.answered(Trial, 1_000);
    state.failed(Plain, 2_000, 0);
    assert_eq!(state.status(3_999), HealthStatus::Ejected);
    assert_eq!(state.status(4_000), HealthStatus::Serving);
}

#[test]
fn probes_take_out_and_bring_back_after_so_many_in_a_row() {
    let mut state = state();
    assert_eq!(state.probed(Finding::Unwell, 0), None);
    assert_eq!(state.probed(Finding::Unwell, 1), None);
    assert_eq!(state.probed(Finding::Well, 2), None);
    for now in 3..5 {
        assert_eq!(state.probed(Finding::Unwell, now), None);
    }
    assert_eq!(state.probed(Finding::Unclear, 5), None);
    assert_eq!(state.probed(Finding::Unwell, 6), Some(EjectionCause::Probe));
    assert_eq!(state.probed(Finding::Unwell, 7), None, "reported once");
    state.answered(Plain, 8);
    assert_eq!(
        state.status(9),
        HealthStatus::Unhealthy,
        "only probes end what they began"
    );
    state.probed(Finding::Well, 10);
    assert_eq!(state.status(10), HealthStatus::Unhealthy);
    state.probed(Finding::Well, 11);
    assert_eq!(state.status(11), HealthStatus::Returning);
}

#[test]
fn without_probes_what_they_found_is_forgotten() {
    let mut state = state();
    for now in 0..3 {
        state.probed(Finding::Unwell, now);
    }
    state.set_rules(&HealthSpec::default());
    assert_eq!(state.status(4), HealthStatus::Serving);
}

#[test]
fn a_worker_that_requests_a_pause_has_it_for_a_minute_at_most() {
    let mut state = state();
    state.passed_over(2_000, 0);
    assert_eq!(state.status(1_999), HealthStatus::Busy);
    assert_eq!(state.status(2_000), HealthStatus::Serving);
    state.passed_over(u64::MAX, 10_000);
    assert_eq!(state.status(69_999), HealthStatus::Busy);
    assert_eq!(state.status(70_000), HealthStatus::Serving);
    assert!(state.is_plain());
}

/// Property over any course of events. A rest is never longer than the rules allow, and there is one trial at a time. A
/// worker that answers and passes its probes is back in full in the end.
#[test]
fn any_course_of_events_ends_well_for_a_worker_that_is_well() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for course in 0..2_000_u64 {
        let rules = HealthSpec {
            failures: 1 + random(3) as u32,
            server_errors: random(3) as u32,
            failure_min_requests: random(8) as u32,
            slow_start: Duration::from_millis(random(3) * 1_000),
            ..rules()
        };
        let mut state = in_service(rules);
        let (mut now, mut answers, mut last_trial) = (0, 0, None);
        for _ in 0..60 {
            now += random(2_000);
            match random(8) {
                0 | 1 => {
                    let dispatch = state.begin(now);
                    if dispatch == Trial {
                        let gap = last_trial.map_or(u64::MAX, |last| now - last);
                        assert!(gap >= 1_000, "course {course}: two trials within {gap} ms");
                        last_trial = Some(now);
                        assert!(
                            state.status(now).is_out(),
                            "course {course}: the others keep away"
                        );
                    }
                }
                2 => drop(failed(&mut state, (now, answers), random(2) == 0)),
                3 => drop(server_error(&mut state, Plain, (now, answers), random(2) == 0)),
                4 => drop(state.probed(Finding::Unwell, now)),
                5 => drop(state.probed(Finding::Well, now)),
                6 => state.passed_over(random(90_000), now),
                _ => {
                    answers += 1;
                    state.answered(Plain, now);
                }
            }
        }
        for _ in 0..2 {
            state.probed(Finding::Well, now);
        }
        // The longest rest, the longest time it may be passed over, and then whatever is sent is answered.
        now += 60_000;
        assert!(!state.status(now).is_out(), "course {course}");
        let dispatch = state.begin(now);
        state.answered(dispatch, now);
        now += 2_000;
        assert_eq!(state.status(now), HealthStatus::Serving, "course {course}");
        assert!(state.is_plain() && state.failures() == 0, "course {course}");
        assert!((0..100).all(|seq| state.admits(seq, now)), "course {course}");
    }
}
