//! Runner of a plan's steps. Every [`PlanStep`] runs through [`Steps::run`]: nothing else makes a [`RefusedPlan`], so a
//! step that is not in the list does not compile.

use admin_pages::control::PlanStep;
use thiserror::Error;

use super::RefusedConfig;

/// Runs the steps of a plan.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// A step that fails once its work is done. The router sets none; tests set each in turn.
    pub(crate) fault: Option<PlanStep>,
}

impl Steps {
    /// Runs one step.
    ///
    /// # Errors
    /// [`RefusedPlan`] where its work fails.
    pub(crate) fn run<T>(
        &self,
        step: PlanStep,
        work: impl FnOnce() -> Result<T, RefusedConfig>,
    ) -> Result<T, RefusedPlan> {
        let done = work().and_then(|done| match self.fault {
            Some(fault) if fault == step => Err(RefusedConfig::Fault),
            _ => Ok(done),
        });
        done.map_err(|reason| RefusedPlan { step, reason })
    }
}

/// A plan that failed. Nothing that was active before has changed.
#[derive(Debug, Error)]
#[error("refused while {step}")]
pub(crate) struct RefusedPlan {
    step: PlanStep,
    #[source]
    reason: RefusedConfig,
}

impl RefusedPlan {
    /// Returns the failed step.
    #[must_use]
    pub(crate) fn step(&self) -> PlanStep {
        self.step
    }

    /// Returns the reason.
    #[must_use]
    pub(crate) fn reason(&self) -> &RefusedConfig {
        &self.reason
    }

    /// Returns the reason by value.
    #[must_use]
    pub(crate) fn into_reason(self) -> RefusedConfig {
        self.reason
    }
}
