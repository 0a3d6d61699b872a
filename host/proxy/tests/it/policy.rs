//! Scripted native policy that records its inputs.

use std::fmt;
use std::sync::{Arc, Mutex};

use routing::{
    Choice, DecisionInput, FaultKind, FeaturePlan, Phase, Policy, PolicyDescription, PolicyFault, Verdict,
};

type Script = Box<dyn Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync>;

pub(crate) struct Scripted {
    name: &'static str,
    plan: FeaturePlan,
    script: Script,
    /// Numbers of every call.
    pub(crate) shown: Mutex<Vec<Vec<f64>>>,
    phases: Mutex<Vec<Phase>>,
}

impl Scripted {
    pub(crate) fn new(
        script: impl Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::seeing(&[], &[], script)
    }

    pub(crate) fn seeing(
        request: &[&str],
        candidate: &[&str],
        script: impl Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::named("scripted", request, candidate, script)
    }

    /// Creates a policy with this name in the configuration.
    pub(crate) fn named(
        name: &'static str,
        request: &[&str],
        candidate: &[&str],
        script: impl Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            plan: FeaturePlan::resolve(request, candidate).unwrap(),
            script: Box::new(script),
            shown: Mutex::default(),
            phases: Mutex::default(),
        })
    }

    /// Creates a policy that always takes the first candidate.
    pub(crate) fn first(request: &[&str], candidate: &[&str]) -> Arc<Self> {
        Self::seeing(request, candidate, |_| Ok(route(0)))
    }

    pub(crate) fn shown(&self) -> Vec<Vec<f64>> {
        self.shown.lock().unwrap().clone()
    }

    /// Returns the phase of every call.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        self.phases.lock().unwrap().clone()
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl PolicyDescription for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Scripted {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        self.shown.lock().unwrap().push(input.numbers.to_vec());
        self.phases.lock().unwrap().push(input.request.phase);
        (self.script)(input)
    }
}

pub(crate) fn route(row: u32) -> Verdict {
    Verdict::Route(Choice {
        row,
        prefill: None,
        score: f64::NAN,
    })
}

/// Creates a verdict: row `row` answers the client, row `prefill` computes its prompt.
pub(crate) fn pair(row: u32, prefill: u32) -> Verdict {
    Verdict::Route(Choice {
        row,
        prefill: Some(prefill),
        score: f64::NAN,
    })
}

pub(crate) fn fault() -> PolicyFault {
    PolicyFault {
        policy: "scripted".into(),
        kind: FaultKind::Trap,
        detail: "unreachable".to_owned(),
    }
}
