//! Parts of a pipeline's decision, as columns and sentences.

use decision_log::{DecisionLine, PolicyLine, ScoredLine};
use routing::PipelineSpec;

/// Returns the figure of each candidate, which decides, and before it the scores that it came from; by name, row by
/// row.
pub(super) fn columns(line: &DecisionLine) -> Vec<(String, Vec<f64>)> {
    let Some(weighing) = &line.weighing else {
        return Vec::new();
    };
    let scored = weighing.scorers.iter().filter_map(|scored| {
        let scores = scored.scores.as_ref()?;
        Some((format!("score of {}", scored.policy), scores.0.clone()))
    });
    let figure = ("figure".to_owned(), weighing.figures.0.clone());
    std::iter::once(figure).chain(scored).collect()
}

/// Lists the parts that the columns do not show.
pub(super) fn parts(policy: &PolicyLine, line: &DecisionLine) -> Vec<String> {
    let (Some(pipeline), Some(weighing)) = (&policy.pipeline, &line.weighing) else {
        return Vec::new();
    };
    let spec = PipelineSpec::from(pipeline);
    let ignored = weighing.ignored_filters.iter().filter_map(|filter| {
        let filter = spec.filters.get(*filter as usize)?;
        Some(format!(
            "the filter \"{filter}\" excluded every candidate and was ignored"
        ))
    });
    let weighed = spec.terms.iter().map(|term| format!("weighed {term}"));
    let queries = weighing.scorers.iter().flat_map(scorer);
    weighed.chain(ignored).chain(queries).collect()
}

fn scorer(scored: &ScoredLine) -> Vec<String> {
    let name = &scored.policy;
    let Some(version) = &scored.version else {
        return vec![format!(
            "{name} was left out: the circuits of all its versions are open"
        )];
    };
    let fault = scored.fault.iter();
    let fault = fault.map(|fault| format!("{name}@{version} was left out: {}: {}", fault.kind, fault.detail));
    let calls = scored.transcript.iter().map(|line| line.recorded_call());
    let queries = calls.map(|recorded| {
        format!(
            "{name}@{version} queried {}: {:?}",
            recorded.call, recorded.result
        )
    });
    fault.chain(queries).collect()
}
