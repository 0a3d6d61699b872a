//! Runs as a whole: what holds of every one.

use std::sync::{Arc, Mutex, PoisonError};

use routing::{DecisionInput, FeaturePlan, Policy, PolicyDescription, PolicyFault, Verdict};
use simulator::{
    AfterAnswer, ClusterSpec, End, Failure, Mix, Outcome, Policies, RESEARCH_BLOCKS, RouterDeath, RunSpec,
    SharingSpec, Summary, Trace, run,
};

use crate::published::{least_requests, policy, round_robin};

fn trace() -> Trace {
    let mut options = Mix::Conversation.usual(7);
    options.requests = 400;
    Mix::Conversation.generate(&options)
}

fn spec(cluster: ClusterSpec) -> RunSpec {
    RunSpec::of(cluster)
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let trace = trace();
    let spec = spec(ClusterSpec::disaggregated(4, 4, RESEARCH_BLOCKS));
    let once = || run(&trace, [Policies::One(policy("least", least_requests))], &spec);
    assert_eq!(once(), once());
}

#[test]
fn every_request_is_served_on_every_shape_of_a_cluster() {
    let trace = trace();
    for cluster in [
        ClusterSpec::prefill_only(4, RESEARCH_BLOCKS),
        ClusterSpec::mixed(4, RESEARCH_BLOCKS, None),
        ClusterSpec::mixed(4, RESEARCH_BLOCKS, Some(8_192)),
        ClusterSpec::disaggregated(2, 2, RESEARCH_BLOCKS),
    ] {
        let outcome = run(&trace, [Policies::One(policy("rr", round_robin))], &spec(cluster));
        for course in &outcome.courses {
            assert_eq!(course.end, End::Served);
            let first = course.first_token_us.unwrap();
            assert!(course.dispatched_us.unwrap() <= first && first <= course.finished_us.unwrap());
        }
    }
}

#[test]
fn a_next_turn_arrives_after_the_pause_that_follows_the_answer() {
    let mut trace = trace();
    let half = trace.requests.len() / 2;
    for number in half..trace.requests.len() {
        trace.requests[number].after = Some(AfterAnswer {
            request: number - half,
            pause_us: 1_000 * number as u64,
        });
    }
    let slow = spec(ClusterSpec::mixed(1, RESEARCH_BLOCKS, Some(8_192)));
    let outcome = run(&trace, [Policies::One(policy("rr", round_robin))], &slow);
    for (number, turn) in outcome.courses.iter().enumerate().skip(half) {
        assert_eq!(turn.end, End::Served);
        let ended_us = outcome.courses[number - half].finished_us.unwrap();
        assert_eq!(turn.arrived_us, ended_us + 1_000 * number as u64);
        assert!(turn.dispatched_us.unwrap() >= turn.arrived_us);
    }
}

/// Returns two requests of which the second follows the answer to the first, although it was recorded at its side.
fn two_turns() -> Trace {
    let mut trace = trace();
    trace.requests.truncate(2);
    trace.requests[1].at_us = trace.requests[0].at_us;
    trace.requests[1].after = Some(AfterAnswer {
        request: 0,
        pause_us: 2_000_000,
    });
    trace
}

/// Notes how long each request has waited.
#[derive(Debug)]
struct WaitNoted {
    plan: FeaturePlan,
    waited_ms: Mutex<Vec<f64>>,
}

impl PolicyDescription for WaitNoted {
    fn name(&self) -> &'static str {
        "wait-noted"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for WaitNoted {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let mut waited_ms = self.waited_ms.lock().unwrap_or_else(PoisonError::into_inner);
        waited_ms.push(input.numbers[0]);
        drop(waited_ms);
        Ok(Verdict::Pass)
    }
}

#[test]
fn a_next_turn_has_not_waited_when_it_arrives() {
    let noted = Arc::new(WaitNoted {
        plan: FeaturePlan::resolve(&["request.waited-ms"], &[]).unwrap(),
        waited_ms: Mutex::default(),
    });
    let policies = Policies::One(Arc::clone(&noted) as Arc<dyn Policy>);
    let spec = spec(ClusterSpec::mixed(1, RESEARCH_BLOCKS, None));
    let outcome = run(&two_turns(), [policies], &spec);
    assert!(outcome.courses[1].arrived_us >= 2_000_000);
    assert_eq!(*noted.waited_ms.lock().unwrap(), [0.0, 0.0]);
}

#[test]
fn goodput_is_over_the_time_in_which_requests_arrived_in_the_run() {
    let trace = two_turns().at_speed(1_000.0);
    let spec = spec(ClusterSpec::mixed(1, RESEARCH_BLOCKS, None));
    let outcome = round_robin_on(&trace, &spec);
    let summary = Summary::of(&trace, &outcome, &spec.limits);
    let seconds = (outcome.courses[1].arrived_us - outcome.courses[0].arrived_us) as f64 / 1e6;
    assert_eq!(summary.effective, 1.0);
    assert_eq!(summary.goodput_per_s, 2.0 / seconds);
}

#[test]
fn a_worker_that_fails_loses_only_answers_that_had_begun() {
    let trace = trace();
    let mut spec = spec(ClusterSpec::mixed(4, RESEARCH_BLOCKS, Some(8_192)));
    spec.failures = vec![Failure {
        worker: 1,
        at_us: trace.duration_us() / 2,
        back_us: Some(trace.duration_us() * 3 / 4),
    }];
    let outcome = run(&trace, [Policies::One(policy("rr", round_robin))], &spec);
    let lost = outcome.courses.iter().filter(|course| course.end != End::Served);
    let mut count = 0;
    for course in lost {
        assert_eq!((course.end, course.worker), (End::Lost, Some(1)));
        assert!(course.first_token_us.is_some());
        count += 1;
    }
    assert!(count < 100, "{count}");
    // The worker serves again after it came back.
    let late = |course: &&simulator::RequestOutcome| course.arrived_us > trace.duration_us() * 7 / 8;
    assert!(
        outcome
            .courses
            .iter()
            .filter(late)
            .any(|course| course.worker == Some(1))
    );
}

#[test]
fn several_routers_serve_as_one() {
    let trace = trace();
    let spec = spec(ClusterSpec::mixed(4, RESEARCH_BLOCKS, None));
    let routers = (0..3).map(|_| Policies::One(policy("least", least_requests)));
    let outcome = run(&trace, routers, &spec);
    assert!(outcome.courses.iter().all(|course| course.end == End::Served));
}

#[test]
fn a_router_that_dies_loses_its_own_requests_and_the_others_serve_the_rest() {
    let trace = trace();
    let at_us = trace.duration_us() / 2;
    let mut spec = spec(ClusterSpec::mixed(4, RESEARCH_BLOCKS, Some(8_192)));
    spec.router.deaths = vec![RouterDeath { router: 1, at_us }];
    spec.router.sharing = Some(SharingSpec {
        every_us: 5_000,
        lag_us: 1_000,
        loss: 0.0,
        queue: true,
        costs: true,
        expected: false,
        cuts: Vec::new(),
    });
    let policies = || (0..3).map(|_| Policies::One(policy("rr", round_robin)));
    let outcome = run(&trace, policies(), &spec);
    let mut lost = 0;
    for (number, course) in outcome.courses.iter().enumerate() {
        if course.end != End::Served {
            assert_eq!((course.end, number % 3), (End::Lost, 1));
            assert!(course.arrived_us <= at_us && course.finished_us.is_none());
            lost += 1;
        }
    }
    assert!(0 < lost && lost < 100, "{lost}");
    assert_eq!(run(&trace, policies(), &spec), outcome);
}

fn round_robin_on(trace: &Trace, spec: &RunSpec) -> Outcome {
    run(trace, [Policies::One(policy("rr", round_robin))], spec)
}

#[test]
fn a_decode_worker_that_refuses_wastes_what_was_computed_for_it() {
    let trace = trace();
    let mut spec = spec(ClusterSpec::disaggregated(8, 1, RESEARCH_BLOCKS));
    let patient = Summary::of(&trace, &round_robin_on(&trace, &spec), &spec.limits);
    assert_eq!((patient.rejected, patient.wasted_prefill_tokens), (0, 0));
    // So long are its steps with 380,000 tokens: some 30 requests.
    spec.cluster.decode_refuses_over_us = Some(47_000);
    let outcome = round_robin_on(&trace, &spec);
    let summary = Summary::of(&trace, &outcome, &spec.limits);
    assert!(summary.rejected_after_prefill > 20, "{summary:?}");
    assert_eq!((summary.rejected_early, summary.lost), (0, 0));
    assert_eq!(summary.served + summary.rejected_after_prefill, summary.requests);
    assert!(
        (0.05..0.95).contains(&summary.wasted_prefill_share),
        "{summary:?}"
    );
    for course in &outcome.courses {
        let refused = course.end != End::Served;
        assert_eq!(course.first_token_us.is_none(), refused, "its client saw nothing");
    }
    assert!(summary.tbt_ms.max <= patient.tbt_ms.max, "{summary:?}");
}

#[test]
fn an_answer_whose_decode_worker_is_away_is_written_by_another() {
    let trace = trace();
    let mut spec = spec(ClusterSpec::disaggregated(2, 2, RESEARCH_BLOCKS));
    let undisturbed = round_robin_on(&trace, &spec);
    // While a prompt is computed whose answer was to be written by worker 3.
    let waits = undisturbed
        .courses
        .iter()
        .find(|course| course.worker == Some(3) && course.first_token_us > course.dispatched_us)
        .unwrap();
    let at_us = waits.arrived_us + 1;
    spec.failures = vec![Failure {
        worker: 3,
        at_us,
        back_us: None,
    }];
    let outcome = round_robin_on(&trace, &spec);
    let moved = &outcome.courses[undisturbed
        .courses
        .iter()
        .position(|course| course == waits)
        .unwrap()];
    assert_eq!((moved.worker, moved.end), (Some(2), End::Served));
    assert_eq!(moved.prefill, waits.prefill, "its prompt was not computed again");
    assert_eq!(moved.first_token_us, waits.first_token_us);
    // Requests without a token of worker 3 start over; only those with one are lost.
    let lost = outcome.courses.iter().filter(|course| course.end == End::Lost);
    assert!(
        lost.clone()
            .all(|course| course.worker == Some(3) && course.arrived_us < at_us)
    );
}

#[test]
fn without_any_decode_worker_left_requests_are_refused_and_not_lost() {
    let trace = trace();
    let mut spec = spec(ClusterSpec::disaggregated(2, 1, RESEARCH_BLOCKS));
    let at_us = trace.duration_us() / 2;
    spec.failures = vec![Failure {
        worker: 2,
        at_us,
        back_us: None,
    }];
    let outcome = round_robin_on(&trace, &spec);
    for course in &outcome.courses {
        if course.arrived_us > at_us {
            assert!(
                matches!(course.end, End::Rejected { status: 503, .. }),
                "{course:?}"
            );
        } else {
            assert_ne!(course.end, End::Unfinished);
        }
    }
}

#[test]
fn samples_show_the_course_and_a_run_is_the_same_without_them() {
    let trace = trace();
    let mut spec = spec(ClusterSpec::disaggregated(2, 2, RESEARCH_BLOCKS));
    let outcome = round_robin_on(&trace, &spec);
    let last = outcome.samples.last().unwrap();
    assert!(last.blocks > 0 && last.cached_blocks < last.blocks);
    assert!(outcome.samples.iter().any(|sample| sample.in_prefill > 0
        && sample.most_queued_tokens <= sample.queued_tokens
        && sample.decoding > 0
        && sample.resident_tokens > 0
        && sample.prefill_load > Some(0.0)
        && sample.decode_load > Some(0.0)));
    let summary = Summary::of(&trace, &outcome, &spec.limits);
    assert!(summary.loads.prefill.mean > 0.0 && summary.loads.decode.swing > 0.0);
    assert!(summary.loads.correlation.abs() <= 1.0, "{summary:?}");
    spec.sample_every_us = 0;
    let unseen = round_robin_on(&trace, &spec);
    assert!(unseen.samples.is_empty());
    assert_eq!(unseen.courses, outcome.courses);
}
