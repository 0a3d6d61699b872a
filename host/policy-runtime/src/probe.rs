//! The trial of a policy before it may decide: a few made-up decisions, the same for every policy and run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{
    CandidateFeature, DecisionInput, DecisionQueries, FeaturePlan, InvalidVerdict, Offer, Phase,
    RequestFacts, Role, Tier, Worker, WorkerId, WorkerSpec, check,
};
use thiserror::Error;

use crate::budget::Budget;
use crate::fault::Failure;
use crate::instance::Instance;
use crate::load_error::LoadError;
use crate::random::SplitMix64;

/// Candidates of each trial; the last size comes twice, so that what is timed has its memory already.
const SIZES: [usize; 4] = [1, 16, 256, 256];
/// One number in this many is unknown.
const UNKNOWN_SHARE: u64 = 8;

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

/// Runs the trials and gives the time of the last, at 256 candidates.
pub(crate) fn probe(
    instance: &mut Instance,
    plan: &FeaturePlan,
    budget: Budget,
) -> Result<Duration, LoadError> {
    let mut took = Duration::ZERO;
    for (trial, candidates) in (1..).zip(SIZES) {
        let start = Instant::now();
        try_once(instance, plan, budget, trial, candidates)
            .map_err(|source| LoadError::Probe { candidates, source })?;
        took = start.elapsed();
    }
    Ok(took)
}

fn try_once(
    instance: &mut Instance,
    plan: &FeaturePlan,
    budget: Budget,
    trial: u64,
    candidates: usize,
) -> Result<(), ProbeError> {
    let ids: Vec<_> = (0..).map(WorkerId).take(candidates).collect();
    let roles: Vec<_> = ids.iter().map(|id| role(*id)).collect();
    let request = RequestFacts {
        seq: trial,
        session: Some(trial),
        phase: Phase::Mixed,
        attempt: 0,
        now_us: trial * 1000,
    };
    let queries: Arc<dyn DecisionQueries> = Arc::new(MadeUp { candidates });
    let verdict = instance.decide(
        &DecisionInput {
            request: &request,
            ids: &ids,
            numbers: &numbers(trial, plan, &roles),
            queries: &queries,
        },
        budget,
    )?;
    let offer = if plan.pairs() {
        Offer::Pair {
            roles: &roles,
            alone: true,
        }
    } else {
        Offer::One { candidates }
    };
    check(verdict, offer)?;
    Ok(())
}

/// One candidate alone can do everything; of more, some do one part only.
fn role(id: WorkerId) -> Role {
    [Role::Mixed, Role::Prefill, Role::Decode][id.0 as usize % 3]
}

/// Numbers up to some thousands with two decimals, some of them unknown; roles are what they are.
fn numbers(trial: u64, plan: &FeaturePlan, roles: &[Role]) -> Vec<f64> {
    let mut random = SplitMix64::of_decision(trial, 0);
    let mut number = || match random.next() {
        unknown if unknown % UNKNOWN_SHARE == 0 => f64::NAN,
        known => (known >> 46) as f64 / 100.0,
    };
    let mut numbers: Vec<f64> = plan.request().iter().map(|_| number()).collect();
    for role in roles {
        numbers.extend(plan.candidate().iter().map(|feature| match feature {
            CandidateFeature::Role => role.number(),
            _ => number(),
        }));
    }
    numbers
}

/// Answers as a fleet of equal workers would.
struct MadeUp {
    candidates: usize,
}

impl DecisionQueries for MadeUp {
    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        let spec = WorkerSpec {
            name: format!("worker-{}", id.0).into(),
            url: format!("http://worker-{}", id.0).into(),
            role: role(id),
            models: vec![],
            weight: 1.0,
            labels: BTreeMap::from([("zone".into(), "a".into())]),
            rank: None,
            bootstrap: None,
        };
        ((id.0 as usize) < self.candidates).then(|| Arc::new(Worker::new(id, spec)))
    }

    fn matched(&self, _: Tier) -> Vec<u32> {
        (0..).step_by(16).take(self.candidates).collect()
    }

    fn holders(&self, _: u32) -> u32 {
        self.candidates as u32
    }

    fn header(&self, _: &str) -> Option<String> {
        None
    }

    fn model(&self) -> &str {
        "made-up"
    }

    fn path(&self) -> &str {
        "/v1/chat/completions"
    }
}
