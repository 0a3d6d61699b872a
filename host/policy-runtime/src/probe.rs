//! The trial of a policy before it may decide: a few made-up decisions, the same for every policy and run.

use std::time::{Duration, Instant};

use routing::{FaultKind, FeaturePlan, InvalidVerdict, Verdict, check};
use thiserror::Error;

use crate::budget::Budget;
use crate::fault::Failure;
use crate::instance::Instance;
use crate::load_error::LoadError;
use crate::made_up::{MadeUpCall, Numbers, Recipe};

/// Candidates of each trial; the last size comes twice, so that what is timed has its memory already.
const SIZES: [usize; 4] = [1, 16, 256, 256];

/// How a trial went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// It did not answer.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It answered nonsense.
    #[error(transparent)]
    Nonsense(#[from] InvalidVerdict),
}

impl ProbeError {
    /// The kind of fault the router would count.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Failed(failure) => failure.kind,
            Self::Nonsense(_) => FaultKind::InvalidVerdict,
        }
    }

    /// What happened, in one line without the kind.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Failed(failure) => failure.detail.clone(),
            Self::Nonsense(nonsense) => nonsense.to_string(),
        }
    }
}

/// Runs the trials and gives the time of the last, at 256 candidates.
pub(crate) fn probe(
    instance: &mut Instance,
    plan: &FeaturePlan,
    budget: Budget,
) -> Result<Duration, LoadError> {
    let mut took = Duration::ZERO;
    for (trial, candidates) in (1..).zip(SIZES) {
        let recipe = Recipe {
            candidates,
            numbers: Numbers::SomeUnknown,
            ..Recipe::USUAL
        };
        let call = MadeUpCall::new(plan, recipe, trial);
        let start = Instant::now();
        ask(instance, &call, trial, budget).map_err(|source| LoadError::Probe { candidates, source })?;
        took = start.elapsed();
    }
    Ok(took)
}

/// Has an instance decide a made-up request of that number, and checks its answer as the router does. One that is a scorer
/// besides scores it too.
pub(crate) fn ask(
    instance: &mut Instance,
    call: &MadeUpCall,
    seq: u64,
    budget: Budget,
) -> Result<Verdict, ProbeError> {
    let request = call.request(seq);
    let input = call.input(&request);
    let verdict = instance.decide(&input, budget)?;
    check(verdict.clone(), call.offer())?;
    if instance.does_both() {
        instance.score(&input, budget)?;
    }
    Ok(verdict)
}
