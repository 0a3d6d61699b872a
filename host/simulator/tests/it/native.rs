//! Shipped policies without WebAssembly, so that their published figures are checked in a moment. What they query
//! besides their numbers is not known here, but for chance.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use conductor_policy_sdk::{Configured, Host, Level, StateError, Tier, WorkerId, WorkerInfo};
use routing::{Choice, DecisionInput, FaultKind, FeaturePlan, PolicyFault, SplitMix64, Verdict};

struct Native<P> {
    policy: Configured<P>,
    plan: FeaturePlan,
}

/// Returns a shipped policy with these parameters.
pub(crate) fn native<P: conductor_policy_sdk::Policy>(params: &str) -> Arc<dyn routing::Policy> {
    let policy = Configured::<P>::new(params).expect("parameters of the policy");
    let plan = policy.plan();
    let columns: Vec<&str> = plan
        .candidate_features()
        .iter()
        .map(|name| name.as_ref())
        .collect();
    let plan = FeaturePlan::resolve(plan.request_features(), &columns).expect("names of the catalogue");
    Arc::new(Native { policy, plan })
}

impl<P: conductor_policy_sdk::Policy> fmt::Debug for Native<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(P::NAME)
    }
}

impl<P: conductor_policy_sdk::Policy> routing::PolicyDescription for Native<P> {
    fn name(&self) -> &str {
        P::NAME
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl<P: conductor_policy_sdk::Policy> routing::Policy for Native<P> {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        let ids: Vec<WorkerId> = input.ids.iter().map(|id| id.0).collect();
        let request = conductor_policy_sdk::Request {
            seq: input.request.seq,
            session: input.request.session,
            phase: conductor_policy_sdk::Phase::Mixed,
            attempt: input.request.attempt,
        };
        let chance = Chance {
            drawn: Cell::default(),
            seq: input.request.seed(),
            now_us: input.request.now_us,
        };
        match self.policy.schedule(request, &ids, input.numbers, &chance) {
            conductor_policy_sdk::Verdict::Route { row, score } => Ok(Verdict::Route(Choice {
                row: row as u32,
                prefill: None,
                score,
            })),
            other => Err(PolicyFault {
                policy: P::NAME.into(),
                kind: FaultKind::InvalidVerdict,
                detail: format!("it is to route, not {other:?}"),
            }),
        }
    }
}

/// Random numbers of one decision.
struct Chance {
    drawn: Cell<u32>,
    seq: u64,
    now_us: u64,
}

impl Host for Chance {
    fn random(&self) -> u64 {
        self.drawn.set(self.drawn.get() + 1);
        SplitMix64::of_decision(self.seq, self.drawn.get()).next()
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn describe(&self, _: WorkerId) -> Option<WorkerInfo> {
        None
    }

    fn matched(&self, _: Tier) -> Vec<u32> {
        Vec::new()
    }

    fn holders(&self, _: u32) -> u32 {
        0
    }

    fn header(&self, _: &str) -> Option<String> {
        None
    }

    fn model(&self) -> String {
        String::new()
    }

    fn path(&self) -> String {
        String::new()
    }

    fn log(&self, _: Level, _: &str) {}

    fn state(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn set_state(&self, _: &str, _: &[u8]) -> Result<(), StateError> {
        Err(StateError::Full)
    }

    fn add_state(&self, _: &str, _: i64) -> Result<i64, StateError> {
        Err(StateError::Full)
    }

    fn delete_state(&self, _: &str) {}

    fn recall_session(&self) -> Option<usize> {
        None
    }

    fn remember_session(&self, _: usize, _: u32) {}

    fn forget_session(&self) {}

    fn wait_for(&self, _: usize, _: u32) {}

    fn ahead(&self, _: &[u32]) -> Vec<u32> {
        Vec::new()
    }
}
