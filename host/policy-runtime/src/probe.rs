//! Trial decisions of a policy before it serves: a few synthetic inputs, the same for every policy and run.

use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, InvalidVerdict, Verdict, check};
use thiserror::Error;

use crate::budget::CallBudget;
use crate::fault::Failure;
use crate::instance::Instance;
use crate::load_error::LoadError;
use crate::synthetic::{InputRecipe, NumberSource, SyntheticCall};

/// Candidates and numbers of each trial. The last trial is repeated, so that the timed call has its memory already.
const TRIALS: [(usize, NumberSource); 4] = [
    (1, NumberSource::SomeUnknown),
    (16, NumberSource::UnknownPrompt),
    (256, NumberSource::SomeUnknown),
    (256, NumberSource::SomeUnknown),
];

/// Failure of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// The policy did not answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The answer was invalid.
    #[error(transparent)]
    Nonsense(#[from] InvalidVerdict),
}

impl ProbeError {
    /// Returns the router's fault kind.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Failed(failure) => failure.kind,
            Self::Nonsense(_) => FaultKind::InvalidVerdict,
        }
    }

    /// Returns the failure in one line without the kind.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Failed(failure) => failure.detail.clone(),
            Self::Nonsense(nonsense) => nonsense.to_string(),
        }
    }
}

/// Runs the trials and returns the time of the last one, with 256 candidates.
pub(crate) fn probe(
    instance: &mut Instance,
    plan: &FeaturePlan,
    budget: CallBudget,
) -> Result<Duration, LoadError> {
    let mut took = Duration::ZERO;
    for (trial, (candidates, numbers)) in (1..).zip(TRIALS) {
        let recipe = InputRecipe {
            candidates,
            numbers,
            ..InputRecipe::USUAL
        };
        let call = SyntheticCall::new(plan, recipe, trial);
        let start = Instant::now();
        decide_synthetic(instance, &call, trial, budget).map_err(|source| LoadError::Probe {
            candidates,
            is_prompt_unknown: numbers == NumberSource::UnknownPrompt,
            source,
        })?;
        took = start.elapsed();
    }
    Ok(took)
}

/// Decides one synthetic request, and checks the answer as the router does. A scorer scores it too.
pub(crate) fn decide_synthetic(
    instance: &mut Instance,
    call: &SyntheticCall,
    seq: u64,
    budget: CallBudget,
) -> Result<Verdict, ProbeError> {
    let request = call.request(seq);
    let input = call.input(&request);
    let verdict = instance.decide(&input, budget)?;
    check(verdict.clone(), call.offer())?;
    if instance.decides_and_scores() {
        instance.score(&input, budget)?;
    }
    Ok(verdict)
}
