//! Costs are found again in recordings of a cluster that is known to have them.

use super::*;
use crate::profile::Profile;
use crate::request::Request;
use crate::trace::{Mix, RecordedRequest};
use crate::{ClusterSpec, RunSpec, Trace, WorkerSpec};
use routing::Role;

const TRUE: FittedProfile = FittedProfile {
    prefill_ms: [12.0, 80.0, 3.0],
    transfer_ms: [0.0; 2],
    step_ms: [9.0, 0.4, 0.05],
    host_ms: 0.0,
    disk_ms: 0.0,
    kv_tokens: 2_000_000,
    link_gbps: 1.0,
};

/// Returns a router's record of four workers with these costs that compute one prompt after the other.
fn recording(requests_per_s: f64) -> Recording {
    recording_of(requests_per_s, None)
}

/// Returns the same with steps of so many tokens, with one prompt in each.
fn recording_of(requests_per_s: f64, chunk_tokens: Option<u32>) -> Recording {
    let mut options = Mix::Conversation.usual(7);
    options.requests = 600;
    let trace = Mix::Conversation.generate(&options);
    let speed = requests_per_s * trace.duration_us() as f64 / 1e6 / 600.0;
    recording_on(4, &trace.at_speed(speed), chunk_tokens)
}

/// Returns the record of so many workers' requests.
fn recording_on(workers: usize, trace: &Trace, chunk_tokens: Option<u32>) -> Recording {
    let profile = Profile::Fitted(TRUE);
    let cluster = ClusterSpec {
        workers: vec![WorkerSpec::of(&profile, Role::Mixed, 3_000); workers],
        profile,
        step_prompts: Some(1),
        ..ClusterSpec::mixed(0, 0, chunk_tokens)
    };
    let outcome = crate::run(trace, [], &RunSpec::of(cluster));
    let requests = trace.requests.iter().zip(&outcome.courses);
    let recorded = requests.filter_map(|(request, course)| {
        Some(RecordedRequest {
            at_us: course.arrived_us,
            dispatched_us: course.dispatched_us?,
            first_token_us: course.first_token_us,
            finished_us: course.finished_us?,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            blocks: request.blocks.to_vec(),
            session: request.session,
            worker: course.worker?,
            prefill: None,
            cached_tokens: Some(course.cached_tokens),
            model: "".into(),
        })
    });
    Recording::of("known", trace.block_tokens, workers, recorded.collect())
}

#[track_caller]
fn check(found: f64, expected: f64, tolerance: f64) {
    let error = found / expected - 1.0;
    assert!(error.abs() <= tolerance, "{found} instead of {expected}");
}

/// Checks a time by the fitted profile against the one by the true profile.
#[track_caller]
fn check_times(fit: &Fit, time_us: impl Fn(&Profile) -> u64, tolerance: f64) {
    let [found, known] = [fit.profile.clone(), TRUE].map(|fitted| time_us(&Profile::Fitted(fitted)) as f64);
    check(found, known, tolerance);
}

#[test]
fn prompts_that_found_their_worker_idle_give_the_cost_of_prompts() {
    let fit = Fit::of(&recording(0.1), 1, StepWork::Either).unwrap();
    assert_eq!(fit.from, FitFrom::Idle);
    for (found, expected) in fit.profile.prefill_ms.iter().zip(TRUE.prefill_ms) {
        check(*found, expected, 0.01);
    }
    assert!(
        fit.prompts.r2 > 0.9999 && fit.prompts.median_error < 0.001,
        "{fit:?}"
    );
}

#[test]
fn waiting_time_is_subtracted_if_no_worker_is_ever_idle() {
    let fit = Fit::of(&recording(12.0), 1, StepWork::Either).unwrap();
    assert_eq!(fit.from, FitFrom::AfterWaiting);
    check(fit.profile.prefill_ms[1], TRUE.prefill_ms[1], 0.05);
    assert!(fit.prompts.r2 > 0.95, "{fit:?}");
}

#[test]
fn prompts_beside_answers_are_fitted_together_with_their_steps() {
    let fit = Fit::of(&recording_of(3.0, Some(200_000)), 1, StepWork::Both).unwrap();
    assert_eq!(fit.from, FitFrom::AfterWaiting);
    check(fit.profile.prefill_ms[1], TRUE.prefill_ms[1], 0.03);
    check(fit.profile.prefill_ms[2], TRUE.prefill_ms[2], 0.25);
    check_times(&fit, |profile| profile.prefill_us(4_000, 3_000), 0.05);
    check_times(&fit, |profile| profile.step_us(8, 60_000), 0.1);
}

#[test]
fn prompts_of_one_length_leave_the_cost_of_a_step_to_be_found() {
    let request = |number: u64| Request {
        at_us: number * 200_000,
        prompt_tokens: 1_024,
        output_tokens: 40 + (number * 37 % 100) as u32,
        blocks: [2 * number, 2 * number + 1].into(),
        session: None,
        grown_blocks: Box::default(),
        model: "".into(),
        after: None,
        tenant: None,
    };
    let trace = Trace {
        name: "equal".to_owned(),
        block_tokens: 512,
        requests: (0..400).map(request).collect(),
    };
    let fit = Fit::of(&recording_on(1, &trace, Some(200_000)), 1, StepWork::Both).unwrap();
    assert_eq!(fit.from, FitFrom::AfterWaiting);
    check_times(&fit, |profile| profile.step_us(5, 6_000), 0.05);
    check_times(&fit, |profile| profile.prefill_us(1_024, 0), 0.05);
}

#[test]
fn the_times_between_tokens_give_the_cost_of_a_step() {
    let fit = Fit::of(&recording(1.0), 1, StepWork::Either).unwrap();
    let quality = fit.steps.unwrap();
    assert!(quality.median_error < 0.05, "{fit:?}");
    let known = Profile::Fitted(TRUE).step_us(8, 60_000) as f64;
    let found = Profile::Fitted(fit.profile).step_us(8, 60_000) as f64;
    check(found, known, 0.1);
}

#[test]
fn steps_that_no_term_explains_have_a_low_r2_beside_prompts_too() {
    let mut recording = recording_of(3.0, Some(200_000));
    let courses = &mut recording.measured.courses;
    for (number, (request, course)) in recording.trace.requests.iter().zip(courses).enumerate() {
        // From 22 to 38 ms, whatever the load.
        let gap_us = 22_500 + number as u64 * 7_919 % 15_000;
        let gaps = u64::from(request.output_tokens - 1);
        course.finished_us = course.first_token_us.map(|first_us| first_us + gaps * gap_us);
    }
    let fit = Fit::of(&recording, 1, StepWork::Both).unwrap();
    assert_eq!(fit.from, FitFrom::AfterWaiting);
    let steps = fit.steps.unwrap();
    assert!(steps.r2 < 0.3, "{steps:?}");
}

#[test]
fn nothing_is_fitted_to_a_handful_of_prompts() {
    let few = recording(0.1).first(LEAST - 1);
    assert_eq!(
        Fit::of(&few, 1, StepWork::Either),
        Err(TooFew { found: LEAST - 1 })
    );
    let empty = Trace {
        requests: Vec::new(),
        ..few.trace.clone()
    };
    let none = Recording {
        trace: empty,
        ..few.first(0)
    };
    assert_eq!(Fit::of(&none, 1, StepWork::Either), Err(TooFew { found: 0 }));
}
