//! Fallback policy: the least loaded worker, by weight. Native, infallible and stateless, so that it works when all
//! else fails.

use crate::decision::{Choice, Verdict};
use crate::fault::PolicyFault;
use crate::feature::{CandidateFeature, FeaturePlan};
use crate::policy::{DecisionInput, Policy, PolicyDescription};

/// Chooses the candidate with the fewest requests in flight for its weight. These are this router's own, or those of
/// its engine's recent report if that has more: other routers send to it as well. Among equals it picks one by the
/// request's number, so that an idle fleet is used evenly.
#[derive(Debug)]
pub struct LeastLoaded {
    plan: FeaturePlan,
}

const REQUESTS: usize = 0;
const WEIGHT: usize = 1;
const RUNNING: usize = 2;
const WAITING: usize = 3;
const AGE_MS: usize = 4;
const COLUMNS: usize = 5;
/// Age in milliseconds beyond which an engine's report is ignored: five failed scrapes.
const FRESH_MS: f64 = 10_000.0;

impl Default for LeastLoaded {
    fn default() -> Self {
        let columns = [
            "load.requests",
            "worker.weight",
            "engine.running",
            "engine.waiting",
            "engine.age-ms",
        ];
        debug_assert_eq!(columns.len(), COLUMNS);
        let plan = FeaturePlan::resolve(&[], &columns).expect("the names are in the catalogue");
        debug_assert_eq!(plan.candidate()[REQUESTS], CandidateFeature::Requests);
        debug_assert_eq!(plan.candidate()[WEIGHT], CandidateFeature::Weight);
        debug_assert_eq!(plan.candidate()[RUNNING], CandidateFeature::EngineRunning);
        debug_assert_eq!(plan.candidate()[WAITING], CandidateFeature::EngineWaiting);
        debug_assert_eq!(plan.candidate()[AGE_MS], CandidateFeature::EngineAgeMs);
        Self { plan }
    }
}

impl PolicyDescription for LeastLoaded {
    fn name(&self) -> &'static str {
        "least-loaded"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for LeastLoaded {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let mut best = f64::INFINITY;
        let mut ties = 0_u64;
        let mut row = 0;
        for (index, candidate) in input.numbers.chunks_exact(COLUMNS).enumerate() {
            let cost = cost(candidate);
            if cost < best {
                (best, ties, row) = (cost, 1, index);
            } else if cost == best {
                ties += 1;
            }
        }
        if ties > 1 {
            let wanted = (input.request.seed() % ties) as usize;
            let equals = input.numbers.chunks_exact(COLUMNS).enumerate();
            let nth = equals
                .filter(|(_, candidate)| cost(candidate) == best)
                .nth(wanted);
            row = nth.map_or(row, |(index, _)| index);
        }
        Ok(Verdict::Route(Choice {
            row: row as u32,
            prefill: None,
            score: -best,
        }))
    }
}

fn cost(candidate: &[f64]) -> f64 {
    // Numbers that were not reported are NaN: no age is fresh then, and no number counts.
    let reported = if candidate[AGE_MS] <= FRESH_MS {
        candidate[RUNNING].max(0.0) + candidate[WAITING].max(0.0)
    } else {
        0.0
    };
    (candidate[REQUESTS].max(reported) + 1.0) / candidate[WEIGHT]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::WorkerId;
    use crate::policy::{DecisionQueries, NoAnswers, RequestFacts};

    /// Checks the choice from requests and weights, of engines without reports.
    #[track_caller]
    fn check(seq: u64, rows: &[[f64; 2]], expected: u32) {
        let rows: Vec<_> = rows
            .iter()
            .map(|[requests, weight]| [*requests, *weight, f64::NAN, f64::NAN, f64::NAN])
            .collect();
        check_reported(seq, &rows, expected);
    }

    #[track_caller]
    fn check_reported(seq: u64, rows: &[[f64; COLUMNS]], expected: u32) {
        let ids: Vec<_> = (0..rows.len() as u32).map(WorkerId).collect();
        let request = RequestFacts::of_seq(seq);
        let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
        let input = DecisionInput {
            request: &request,
            ids: &ids,
            numbers: rows.as_flattened(),
            queries: &queries,
        };
        let verdict = LeastLoaded::default().decide(&input).unwrap();
        let Verdict::Route(choice) = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(choice.row, expected);
    }

    #[test]
    fn takes_the_fewest_requests_for_the_weight() {
        check(1, &[[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]], 1);
        check(1, &[[3.0, 4.0], [1.0, 1.0]], 0);
    }

    #[test]
    fn requests_of_other_routers_count_while_the_engines_report_is_fresh() {
        let alone = [3.0, 1.0, f64::NAN, f64::NAN, f64::NAN];
        check_reported(1, &[[0.0, 1.0, 4.0, 2.0, 500.0], alone], 1);
        check_reported(1, &[[0.0, 1.0, 4.0, f64::NAN, FRESH_MS], alone], 1);
        check_reported(1, &[[0.0, 1.0, 4.0, 2.0, FRESH_MS + 1.0], alone], 0);
        // Its own requests count though the engine has not reported them yet.
        check_reported(1, &[[9.0, 1.0, 0.0, 0.0, 500.0], alone], 1);
    }

    #[test]
    fn equally_loaded_workers_are_taken_in_turn() {
        check(0, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 0);
        check(1, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 2);
        check(2, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 0);
    }
}
