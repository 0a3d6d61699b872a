//! Made-up requests of two arms: what is noticed, what is not, and how often that is wrong.

use super::*;

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an approximately standard normal variable.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

/// Requests in sessions of ten, which have half of their variance in common.
struct Traffic {
    random: Random,
    /// Factors of the arms' times.
    slower: [f64; 2],
    /// Shares of failed requests.
    failing: [f64; 2],
}

impl Traffic {
    fn even(seed: u64) -> Self {
        Self {
            random: Random(seed),
            slower: [1.0; 2],
            failing: [0.02; 2],
        }
    }

    /// Sends sessions to both arms in turn until one is worse or there were so many requests of each.
    fn run(&mut self, evidence: &mut Evidence, requests: usize) -> Option<WorseArm> {
        for session in 0..requests / 5 {
            let arm = session % 2;
            let group = (self.random.next() * 64.0) as u8;
            let in_common = self.random.normal();
            for _ in 0..10 {
                let log = -1.5 + 0.5 * (in_common + self.random.normal());
                let ended = RequestResult {
                    ttft: Some(self.slower[arm] * log.exp()),
                    failed: Some(self.random.next() < self.failing[arm]),
                    ..RequestResult::default()
                };
                if let Some(worse) = evidence.add(arm, group, &ended).first() {
                    return Some(*worse);
                }
            }
        }
        None
    }
}

const RULE: StopRule = StopRule {
    ttft_margin: 0.0,
    error_margin: 0.0,
    confidence: 0.95,
    least: 200,
    consecutive_failures: 0,
    stop: true,
};

/// Returns the number of `runs` that ended in a stop.
fn stopped(runs: u64, rule: StopRule, change: impl Fn(&mut Traffic)) -> usize {
    let stops = (0..runs).filter(|run| {
        let mut traffic = Traffic::even(run * 7_919);
        change(&mut traffic);
        traffic.run(&mut Evidence::new(rule, 2), 1_600).is_some()
    });
    stops.count()
}

#[test]
fn an_equal_canary_is_stopped_no_more_often_than_the_confidence_allows_even_without_a_margin() {
    // Four looks at each of two measures: were each as sure as all are to be, one in six would be stopped.
    let wrong = stopped(100, RULE, |_| {});
    assert!(wrong <= 5, "{wrong} of 100");
}

/// Returns the number of `runs` that ended in a stop, with few sessions of many requests. Each session fails at its own
/// rate, the same for both arms.
fn stopped_of_few_sessions(runs: u64, sessions: usize, rates: [f64; 2]) -> usize {
    let stops = (0..runs).filter(|run| {
        let mut random = Random(run * 104_729);
        let mut evidence = Evidence::new(RULE, 2);
        let each: Vec<(usize, u8, f64)> = (0..2 * sessions)
            .map(|at| {
                (
                    at % 2,
                    (at / 2 * 64 / sessions) as u8,
                    rates[usize::from(random.next() < 0.5)],
                )
            })
            .collect();
        (0..400).any(|_| {
            each.iter().any(|(arm, group, rate)| {
                let ended = RequestResult {
                    failed: Some(random.next() < *rate),
                    ..RequestResult::default()
                };
                !evidence.add(*arm, *group, &ended).is_empty()
            })
        })
    });
    stops.count()
}

#[test]
fn few_sessions_that_fail_each_at_its_own_rate_stop_no_more_equal_canaries_either() {
    // Half of what may be wrong is spent on errors, one in 40. Of 1,000 runs 6 are stopped; by the normal quantile it
    // would be 27.
    let wrong = stopped_of_few_sessions(300, 8, [0.1, 0.3]);
    assert!(wrong <= 4, "{wrong} of 300");
}

#[test]
fn a_canary_half_as_fast_is_stopped_for_its_times_and_one_that_fails_more_for_its_errors() {
    let rule = StopRule {
        ttft_margin: 0.1,
        error_margin: 0.01,
        ..RULE
    };
    let mut slow = Traffic::even(1);
    slow.slower[1] = 2.0;
    let found = slow.run(&mut Evidence::new(rule, 2), 3_200).unwrap();
    let look = compared(&found, Measure::Ttft);
    assert!(look.low > 0.1 && look.low < 1.0 && look.high > 1.0, "{found:?}");
    let mut failing = Traffic::even(2);
    failing.failing[1] = 0.25;
    let found = failing.run(&mut Evidence::new(rule, 2), 3_200).unwrap();
    let look = compared(&found, Measure::Errors);
    assert!(look.low > 0.01 && look.estimate > 0.1, "{found:?}");
}

/// Returns the look that found the canary worse by that measure.
#[track_caller]
fn compared(worse: &WorseArm, by: Measure) -> Look {
    match worse.cause {
        StopCause::Compared(measure, look) if (worse.arm, measure) == (1, by) => look,
        _ => panic!("{worse:?}"),
    }
}

/// Adds requests of both arms, whether each failed, in order; how many were in when the canary was first found to be
/// worse.
fn failing(rule: StopRule, requests: &[(usize, bool)]) -> Option<usize> {
    failing_in_groups(rule, requests, 64)
}

/// Returns the same with the sessions of this many groups.
fn failing_in_groups(rule: StopRule, requests: &[(usize, bool)], groups: u8) -> Option<usize> {
    let mut evidence = Evidence::new(rule, 2);
    let mut group = 0;
    requests.iter().position(|(arm, failed)| {
        let ended = RequestResult {
            failed: Some(*failed),
            ..RequestResult::default()
        };
        group = (group + u8::from(*arm == 1)) % groups;
        let worse = evidence.add(*arm, group, &ended);
        worse
            .iter()
            .any(|worse| matches!(worse.cause, StopCause::ConsecutiveFailures { .. }))
    })
}

/// Returns requests in turn: this one of the canary after so many good ones of the control.
fn beside(control: usize, canary: &[bool]) -> Vec<(usize, bool)> {
    let each = canary
        .iter()
        .map(|failed| [vec![(0, false); control], vec![(1, *failed)]].concat());
    each.flatten().collect()
}

#[test]
fn a_canary_that_only_fails_is_worse_once_the_control_shows_that_it_need_not() {
    let rule = StopRule::default();
    assert_eq!(
        failing(rule, &[(1, true); 100]),
        None,
        "the control has no result"
    );
    assert_eq!(
        failing(rule, &beside(9, &[true; 9])),
        Some(10 * 5 - 1),
        "its fifth"
    );
    assert_eq!(failing(rule, &beside(1, &[true; 9])), Some(2 * 7 - 1));
    let after_good = [[false; 1_000].as_slice(), &[true; 9]].concat();
    assert_eq!(failing(rule, &beside(9, &after_good)), Some(10 * 1_005 - 1));
    let [one, four] = [
        [true, false].repeat(20),
        [true, true, true, true, false].repeat(20),
    ];
    assert_eq!(failing(rule, &beside(9, &one)), None);
    assert_eq!(failing(rule, &beside(9, &four)), None);
    // All workers are down, and up again for the control alone.
    let outage = [[(0, true); 45].as_slice(), &[(1, true); 5]].concat().repeat(10);
    assert_eq!(failing(rule, &outage), None);
    let recovered = [outage.as_slice(), &[(0, false); 200]].concat();
    assert!(failing(rule, &recovered).is_some_and(|at| at > 500));
    let off = StopRule {
        consecutive_failures: 0,
        ..rule
    };
    assert_eq!(failing(off, &beside(9, &[true; 15])), None);
}

#[test]
fn failures_of_one_or_two_sessions_in_a_row_stop_no_canary() {
    let (rule, requests) = (StopRule::default(), beside(9, &[true; 50]));
    for groups in [1, 2] {
        assert_eq!(failing_in_groups(rule, &requests, groups), None, "{groups}");
    }
    assert!(failing_in_groups(rule, &requests, 3).is_some());
}

#[test]
fn a_partial_outage_of_both_arms_stops_no_canary() {
    for (canary, failed) in [(0.1, 0.3), (0.1, 0.6), (0.5, 0.6), (0.9, 0.6)] {
        let mut random = Random(11);
        let requests: Vec<_> = (0..10_000)
            .map(|_| (usize::from(random.next() < canary), random.next() < failed))
            .collect();
        assert_eq!(failing(StopRule::default(), &requests), None, "{canary} {failed}");
    }
}

#[test]
fn requests_that_neither_failed_nor_ended_well_do_not_count_as_failures_in_a_row() {
    let mut evidence = Evidence::new(StopRule::default(), 2);
    let failed = RequestResult {
        failed: Some(true),
        ..RequestResult::default()
    };
    let good = RequestResult {
        failed: Some(false),
        ..RequestResult::default()
    };
    let found: Vec<usize> = (0..5)
        .map(|group| {
            for _ in 0..9 {
                evidence.add(0, 0, &good);
            }
            evidence.add(1, 0, &RequestResult::default());
            evidence.add(1, group, &failed).len()
        })
        .collect();
    assert_eq!(found, [0, 0, 0, 0, 1]);
    let summary = evidence.summary(1);
    assert_eq!((summary.requests, summary.judged, summary.failed), (10, 5, 5));
}

/// Adds requests of both arms, of which every 41st of the canary fails if `fails`.
fn answered_whole(evidence: &mut Evidence, fails: bool) {
    for sample in 0..1_000_u64 {
        for arm in [0, 1] {
            let ended = RequestResult {
                failed: Some(arm == 1 && fails && sample % 41 == 0),
                ..RequestResult::default()
            };
            evidence.add(arm, (sample % 64) as u8, &ended);
        }
    }
}

#[test]
fn without_streamed_answers_the_failures_alone_give_the_verdict() {
    let rule = StopRule {
        error_margin: 0.1,
        ..RULE
    };
    let mut evidence = Evidence::new(rule, 2);
    assert_eq!(evidence.verdict(1), CanaryVerdict::TooFew);
    answered_whole(&mut evidence, false);
    assert_eq!(evidence.verdict(1), CanaryVerdict::NoWorse);
    assert_eq!(evidence.shortages(1), []);
    let streamed = RequestResult {
        ttft: Some(0.1),
        failed: Some(false),
        ..RequestResult::default()
    };
    evidence.add(0, 0, &streamed);
    assert_eq!(evidence.verdict(1), CanaryVerdict::TooFew);
    let mut worse = Evidence::new(RULE, 2);
    answered_whole(&mut worse, true);
    assert_eq!(worse.verdict(1), CanaryVerdict::Worse);
}

#[test]
fn a_comparison_without_a_look_reports_what_it_waits_for() {
    let mut evidence = Evidence::new(RULE, 2);
    for sample in 0..250_u64 {
        let ended = RequestResult {
            failed: Some(false),
            ..RequestResult::default()
        };
        evidence.add(0, (sample % 64) as u8, &ended);
        if sample < 210 {
            evidence.add(1, (sample % 3) as u8, &ended);
        }
    }
    let reported: Vec<_> = evidence
        .shortages(1)
        .iter()
        .map(|shortage| {
            (
                shortage.measure,
                shortage.arm,
                shortage.of,
                shortage.have,
                shortage.need,
            )
        })
        .collect();
    assert_eq!(
        reported,
        [
            (Measure::Ttft, 0, Wanted::FirstTokens, 0, 200),
            (Measure::Ttft, 0, Wanted::SessionGroups, 0, 8),
            (Measure::Ttft, 1, Wanted::FirstTokens, 0, 200),
            (Measure::Ttft, 1, Wanted::SessionGroups, 0, 8),
            (Measure::Errors, 1, Wanted::SessionGroups, 3, 8),
        ]
    );
    assert_eq!(evidence.shortages(0), []);
}

#[test]
fn a_canary_worse_by_less_than_the_margin_is_not_stopped() {
    let rule = StopRule {
        ttft_margin: 0.5,
        error_margin: 0.1,
        ..RULE
    };
    let stops = stopped(20, rule, |traffic| {
        traffic.slower[1] = 1.2;
        traffic.failing[1] = 0.06;
    });
    assert_eq!(stops, 0);
}

#[test]
fn looks_are_taken_at_least_and_at_each_doubling() {
    let mut evidence = Evidence::new(RULE, 2);
    let mut taken = vec![];
    for sample in 1..=900_u64 {
        for arm in [0, 1] {
            let ended = RequestResult {
                failed: Some(false),
                ..RequestResult::default()
            };
            evidence.add(arm, (sample % 64) as u8, &ended);
        }
        let look = evidence.last(1, Measure::Errors);
        if let Some(look) = look.filter(|look| look.samples == sample) {
            taken.push((look.number, look.samples));
        }
    }
    assert_eq!(taken, [(1, 200), (2, 400), (3, 800)]);
    assert_eq!(evidence.last(1, Measure::Ttft), None, "nothing was streamed");
}

#[test]
fn a_canary_that_is_clearly_better_is_called_so() {
    let mut evidence = Evidence::new(RULE, 2);
    let mut traffic = Traffic::even(3);
    traffic.slower[1] = 0.5;
    traffic.failing = [0.0; 2];
    assert_eq!(traffic.run(&mut evidence, 3_200), None);
    let look = evidence.last(1, Measure::Ttft).unwrap();
    assert_eq!(look.verdict, CanaryVerdict::Better);
    assert!(look.high < 0.0);
}

#[test]
fn both_measures_make_one_verdict() {
    use CanaryVerdict::{Better, NoWorse, TooFew, Undecided, Worse};
    for (ttft, errors, expected) in [
        (Worse, TooFew, Worse),
        (Better, Worse, Worse),
        (Better, TooFew, TooFew),
        (Better, Undecided, Undecided),
        (Better, NoWorse, Better),
        (NoWorse, NoWorse, NoWorse),
    ] {
        assert_eq!(CanaryVerdict::of(ttft, errors), expected);
    }
}
