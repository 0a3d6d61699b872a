//! Scores: validation, and a decision by scores alone.

use routing::{Choice, DecisionInput, FaultKind, SplitMix64, Verdict, highest};

use crate::fault::Failure;

/// Checks that there is one score per candidate.
pub(crate) fn check(scores: &[f64], input: &DecisionInput<'_>) -> Result<(), Failure> {
    let (scores, candidates) = (scores.len(), input.ids.len());
    if scores == candidates {
        return Ok(());
    }
    let detail = format!("it gave {scores} scores for {candidates} candidates");
    Err(Failure::new(FaultKind::InvalidVerdict, &detail))
}

/// Returns the highest score; ties are broken by the request's own randomness. Without any score there is no choice.
pub(crate) fn best(input: &DecisionInput<'_>, scores: &[f64]) -> Verdict {
    let mut random = SplitMix64::of_decision(input.request.seed(), input.request.attempt);
    match highest((0..).zip(scores.iter().copied()), &mut random) {
        Some((row, score)) => Verdict::Route(Choice {
            row,
            prefill: None,
            score,
        }),
        None => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use routing::{DecisionQueries, NoAnswers, RequestFacts, WorkerId};

    use super::*;

    fn rows(scores: &[f64]) -> Vec<Option<u32>> {
        let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
        let ids: Vec<_> = (0..scores.len() as u32).map(WorkerId).collect();
        let row = |seq| {
            let request = RequestFacts::of_seq(seq);
            let input = DecisionInput {
                request: &request,
                ids: &ids,
                numbers: &[],
                queries: &queries,
            };
            match best(&input, scores) {
                Verdict::Route(choice) => Some(choice.row),
                _ => None,
            }
        };
        (1..=300).map(row).collect()
    }

    #[test]
    fn the_highest_is_chosen_and_of_equal_ones_each_as_often() {
        assert!(rows(&[1.0, f64::NAN, 3.0, 2.0]).iter().all(|row| *row == Some(2)));
        let chosen = rows(&[5.0, 1.0, 5.0, 5.0]);
        let times = |row| chosen.iter().filter(|chosen| **chosen == Some(row)).count();
        assert_eq!(times(1), 0);
        assert!([0, 2, 3].into_iter().all(|row| times(row) > 60), "{chosen:?}");
    }

    #[test]
    fn without_an_opinion_no_one_is_chosen() {
        assert!(rows(&[f64::NAN, f64::NAN]).iter().all(Option::is_none));
    }
}
