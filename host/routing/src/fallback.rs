//! What decides when the policy cannot: the least loaded worker, by weight. Native, infallible, and free of any
//! state, so that it works when everything else has failed.

use crate::decision::{Choice, Verdict};
use crate::feature::{CandidateFeature, FeaturePlan};
use crate::policy::{DecisionInput, Policy, PolicyFault};

/// Sends to the candidate with the fewest requests in flight for its weight; among equals, to one picked by the
/// request's number, so that an idle fleet is used evenly.
#[derive(Debug)]
pub struct LeastLoaded {
    plan: FeaturePlan,
}

const REQUESTS: usize = 0;
const WEIGHT: usize = 1;
const COLUMNS: usize = 2;

impl Default for LeastLoaded {
    fn default() -> Self {
        let columns = ["load.requests", "worker.weight"];
        debug_assert_eq!(columns.len(), COLUMNS);
        let plan = FeaturePlan::resolve(&[], &columns).expect("both names are in the catalogue");
        debug_assert_eq!(plan.candidate()[REQUESTS], CandidateFeature::Requests);
        debug_assert_eq!(plan.candidate()[WEIGHT], CandidateFeature::Weight);
        Self { plan }
    }
}

impl Policy for LeastLoaded {
    fn name(&self) -> &'static str {
        "least-loaded"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }

    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let mut best = f64::INFINITY;
        let mut ties = 0_u64;
        let mut row = 0;
        for (index, candidate) in input.numbers.chunks_exact(COLUMNS).enumerate() {
            let cost = (candidate[REQUESTS] + 1.0) / candidate[WEIGHT];
            if cost < best {
                (best, ties, row) = (cost, 1, index);
            } else if cost == best {
                ties += 1;
            }
        }
        if ties > 1 {
            let wanted = (input.request.seq % ties) as usize;
            let equals = input.numbers.chunks_exact(COLUMNS).enumerate();
            let nth = equals
                .filter(|(_, c)| (c[REQUESTS] + 1.0) / c[WEIGHT] == best)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::WorkerId;
    use crate::policy::{DecisionQueries, NoAnswers, Phase, RequestFacts};

    #[track_caller]
    fn check(seq: u64, rows: &[[f64; 2]], expected: u32) {
        let ids: Vec<_> = (0..rows.len() as u32).map(WorkerId).collect();
        let request = RequestFacts {
            seq,
            session: None,
            phase: Phase::Mixed,
            attempt: 0,
            now_us: 0,
        };
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
    fn takes_equals_in_turn() {
        check(0, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 0);
        check(1, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 2);
        check(2, &[[0.0, 1.0], [5.0, 1.0], [0.0, 1.0]], 0);
    }
}
