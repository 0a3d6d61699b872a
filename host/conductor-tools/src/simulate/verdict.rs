//! Verdict of a comparison: better, worse or undecided over the seeds.

use serde::Serialize;

use super::estimate::Estimate;
use super::figures::Unit;

/// Verdict by two figures: the share of requests that were served within the limits, and the time to first token,
/// request by request. The second alone would favour a policy that refuses the requests that would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ComparisonVerdict {
    /// Better in one of the two, and not worse in the other.
    Better,
    /// The reverse.
    Worse,
    /// Better in one and worse in the other.
    Mixed,
    /// The intervals of both differences contain 0.
    NoDifference,
    /// A single seed has no interval.
    OneSeed,
    /// A policy failed, or nothing was answered.
    None,
}

/// Returns the verdict on the second of the policies and its words. `ttft_s` and `effective` are its differences from
/// the first.
pub(super) fn judged(
    [baseline, policy]: [&String; 2],
    ttft_s: &Estimate,
    effective: &Estimate,
) -> (ComparisonVerdict, String) {
    let both = format!(
        "first tokens {}, effective {}",
        when(ttft_s),
        Unit::Share.difference(effective)
    );
    if effective.mean.is_none() {
        return (
            ComparisonVerdict::None,
            "no verdict: nothing was answered".to_owned(),
        );
    }
    if effective.half_width.is_none() {
        let sentence = format!("one seed: {both}; the share of chance is unknown, see --seeds");
        return (ComparisonVerdict::OneSeed, sentence);
    }
    // Less time and more requests are better.
    let findings = [-sign(ttft_s), sign(effective)];
    let (best, worst) = (
        findings.iter().any(|sign| *sign > 0),
        findings.iter().any(|sign| *sign < 0),
    );
    match (best, worst) {
        (true, false) => (
            ComparisonVerdict::Better,
            format!("{policy} is better than {baseline}: {both}"),
        ),
        (false, true) => (
            ComparisonVerdict::Worse,
            format!("{policy} is worse than {baseline}: {both}"),
        ),
        (true, true) => (
            ComparisonVerdict::Mixed,
            format!("{policy} is better than {baseline} in one and worse in the other: {both}"),
        ),
        (false, false) => (
            ComparisonVerdict::NoDifference,
            format!("no significant difference between {policy} and {baseline}: {both}"),
        ),
    }
}

/// Returns 1 or -1 where the interval does not contain 0.
fn sign(difference: &Estimate) -> i8 {
    match (difference.mean, difference.half_width) {
        (Some(mean), Some(half_width)) if mean > half_width => 1,
        (Some(mean), Some(half_width)) if mean < -half_width => -1,
        _ => 0,
    }
}

/// Returns a difference of times in words.
fn when(difference_s: &Estimate) -> String {
    let Some(mean) = difference_s.mean else {
        return "not comparable, no request has one under both".to_owned();
    };
    let length = Estimate {
        mean: Some(mean.abs()),
        ..*difference_s
    };
    let side = if mean > 0.0 { "later" } else { "earlier" };
    match mean == 0.0 {
        true => format!("{} s apart", Unit::Fine.format(&length, true)),
        false => format!("{} s {side}", Unit::Fine.format(&length, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(mean: f64, half_width: impl Into<Option<f64>>) -> Estimate {
        Estimate {
            mean: Some(mean),
            half_width: half_width.into(),
        }
    }

    #[track_caller]
    fn judge(ttft_s: Estimate, effective: Estimate) -> (ComparisonVerdict, String) {
        judged([&"old".to_owned(), &"new".to_owned()], &ttft_s, &effective)
    }

    #[test]
    fn better_is_what_is_better_in_one_and_not_worse_in_the_other() {
        let none = estimate(0.001, 0.01);
        let (verdict, sentence) = judge(estimate(-0.5, 0.1), none);
        assert_eq!(verdict, ComparisonVerdict::Better);
        assert_eq!(
            sentence,
            "new is better than old: first tokens 0.500 +-0.100 s earlier, effective +0.1 +-1.0 points"
        );
        assert_eq!(judge(none, estimate(-0.5, 0.1)).0, ComparisonVerdict::Worse);
        assert_eq!(
            judge(estimate(-0.5, 0.1), estimate(-0.5, 0.1)).0,
            ComparisonVerdict::Mixed
        );
    }

    #[test]
    fn a_difference_within_its_interval_is_no_verdict() {
        let (verdict, sentence) = judge(estimate(-0.5, 0.6), estimate(0.1, 0.2));
        assert_eq!(verdict, ComparisonVerdict::NoDifference);
        assert!(sentence.starts_with("no significant difference"), "{sentence}");
        assert_eq!(
            judge(estimate(0.0, 0.0), estimate(0.0, 0.0)).0,
            ComparisonVerdict::NoDifference
        );
    }

    #[test]
    fn one_seed_gives_no_verdict_however_large_the_difference() {
        let (verdict, sentence) = judge(estimate(-50.0, None), estimate(0.5, None));
        assert_eq!(verdict, ComparisonVerdict::OneSeed);
        assert!(sentence.contains("--seeds"), "{sentence}");
    }
}
