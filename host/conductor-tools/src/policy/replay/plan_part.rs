//! Decisions of pipelines that the very same component and parameters were a scorer of: its scores are repeated, and
//! from them and those of the others, as they were recorded, the pipeline's choice.

use std::sync::Arc;

use decision_log::{PipelineLine, ScoredLine, VerdictLine};
use policy_runtime::{Divergence, WasmPolicy};
use routing::{
    DecisionInput, DecisionQueries, NoAnswers, PipelineSpec, PolicyDescription, PolicyFault, Weighed,
    Weigher, WeigherBuffers,
};

use super::columns::{Columns, resolved};
use super::log::RecordedDecision;
use super::replay_same::{RepeatReport, is_of_its_moment, ran_out_of_time};
use super::time_outs::TimeOuts;

/// Part of a scorer in a recorded decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScorerPart<'r> {
    /// Its place among the scorers.
    at: usize,
    scored: &'r ScoredLine,
}

/// Returns the part of a component with these parameters in a decision.
pub(super) fn part_of<'r>(
    policy: &WasmPolicy,
    params: &str,
    recorded: &'r RecordedDecision,
) -> Option<ScorerPart<'r>> {
    let mut scorers = recorded.line.weighing.as_ref()?.scorers.iter().enumerate();
    let own = scorers.find(|(_, scored)| {
        scored.sha256.as_deref() == Some(policy.sha256()) && scored.params.as_deref() == Some(params)
    });
    own.map(|(at, scored)| ScorerPart { at, scored })
}

impl RepeatReport {
    pub(super) fn add_part(
        &mut self,
        policy: &WasmPolicy,
        recorded: &RecordedDecision,
        part: ScorerPart<'_>,
        time_outs: &mut TimeOuts,
    ) {
        let ScorerPart { at, scored } = part;
        self.decisions += 1;
        let columns = Columns::find(policy.plan(), &recorded.policy);
        let Some(columns) = columns.ok().filter(|_| !is_of_its_moment(scored.fault.as_ref())) else {
            self.not_repeatable += 1;
            return;
        };
        let numbers = columns.lay_out(recorded);
        let transcript = scored.to_transcript();
        let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
        let (replayed, took) = recorded.timed_call(&numbers, &queries, |input| {
            policy.score_replaying(input, &transcript)
        });
        self.nanoseconds.push(took);
        time_outs.count(ran_out_of_time(&replayed));
        let replayed_as = match &replayed {
            Err(Divergence::Truncated) => {
                self.not_repeatable += 1;
                return;
            }
            Err(divergence) => {
                self.diverged += 1;
                divergence.to_string()
            }
            Ok(answer) if !is_same(scored, answer) => {
                self.different += 1;
                format!("{answer:?}")
            }
            Ok(answer) => {
                let weighed = weigh_again(recorded, at, answer.as_deref().ok());
                let verdict = weighed.map(|weighed| VerdictLine::from(&weighed.verdict));
                if verdict.is_some() && verdict == recorded.line.verdict {
                    self.identical += 1;
                    return;
                }
                self.different += 1;
                format!("the same scores, and {verdict:?}")
            }
        };
        let before = match (&scored.scores, &scored.fault) {
            (Some(scores), _) => format!("{:?}, and {:?}", scores.0, recorded.line.verdict),
            (None, fault) => format!("{fault:?}"),
        };
        self.differs(recorded, before, replayed_as);
    }
}

fn is_same(recorded: &ScoredLine, replayed: &Result<Vec<f64>, PolicyFault>) -> bool {
    match (&recorded.scores, &recorded.fault, replayed) {
        (Some(recorded), None, Ok(replayed)) => {
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            bits(&recorded.0) == bits(replayed)
        }
        (None, Some(recorded), Err(replayed)) => recorded.kind == replayed.kind.as_str(),
        _ => false,
    }
}

/// Returns the pipeline's verdict with these scores of one scorer and the recorded scores of the others.
fn weigh_again(recorded: &RecordedDecision, at: usize, scores: Option<&[f64]>) -> Option<Weighed> {
    let spec: &PipelineLine = recorded.policy.pipeline.as_ref()?;
    let weighing = recorded.line.weighing.as_ref()?;
    let plan = resolved(&recorded.policy.request_columns, &recorded.policy.columns);
    let weigher = Weigher::new(&PipelineSpec::from(spec), &plan).ok()?;
    let given = |scorer: usize| {
        let recorded = weighing.scorers.get(scorer)?.scores.as_ref();
        if scorer == at {
            scores
        } else {
            recorded.map(|scores| &*scores.0)
        }
    };
    let queries: Arc<dyn DecisionQueries> = Arc::new(NoAnswers);
    let weigh = |input: &DecisionInput<'_>| {
        weigher.weigh(input, &mut WeigherBuffers::default(), |scorer, buffer| {
            let given = given(scorer).filter(|scores| scores.len() == buffer.len());
            if let Some(scores) = given {
                buffer.copy_from_slice(scores);
            }
            given.is_some()
        })
    };
    Some(recorded.timed_call(&recorded.line.numbers.0, &queries, weigh).0)
}
