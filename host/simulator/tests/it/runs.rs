//! Runs as a whole: what holds of every one.

use simulator::{ClusterSpec, End, Failure, Mix, Policies, RESEARCH_BLOCKS, RunSpec, Trace, run};

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
    // It serves again after it came back.
    let late = |course: &&simulator::Course| course.arrived_us > trace.duration_us() * 7 / 8;
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
