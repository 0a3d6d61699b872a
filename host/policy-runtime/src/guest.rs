//! Host state of one instance: its limits and, during a call, the data of its imports.

use std::sync::Arc;

use routing::{DecisionInput, DecisionQueries, HostCall, SplitMix64, WaitsFor};

use crate::budget::{CallBudget, CallMeter};
use crate::limits::InstanceLimits;
use crate::policy_log::PolicyLog;
use crate::recorder::{CallHandling, HostCallRecorder, RecordedResult};
use crate::state::PolicyState;
use crate::ticker::CallGuard;

/// Host state of an instance.
pub(crate) struct GuestState {
    pub(crate) log: Arc<PolicyLog>,
    pub(crate) state: Arc<PolicyState>,
    pub(crate) limits: InstanceLimits,
    pub(crate) meter: CallMeter,
    /// `None` in `describe` and `configure`, which have no data to query.
    pub(crate) decision: Option<DecisionData>,
    /// Recorder of host calls; nearly always `None`.
    pub(crate) recorder: Option<Box<HostCallRecorder>>,
    /// Active during a call.
    pub(crate) watch: CallGuard,
}

/// Data of the imports during a decision or event delivery.
pub(crate) struct DecisionData {
    pub(crate) queries: Arc<dyn DecisionQueries>,
    pub(crate) session: Option<u64>,
    pub(crate) now_us: u64,
    pub(crate) random: SplitMix64,
    /// The worker that a held request waits for.
    pub(crate) waits_for: Option<WaitsFor>,
}

impl DecisionData {
    pub(crate) fn of(input: &DecisionInput<'_>) -> Self {
        let request = input.request;
        Self {
            queries: Arc::clone(input.queries),
            session: request.session,
            now_us: request.now_us,
            random: SplitMix64::of_decision(request.seed(), request.attempt),
            waits_for: None,
        }
    }

    /// Creates the data without a request: `queries` returns only workers.
    pub(crate) fn without_request(queries: Arc<dyn DecisionQueries>, now_us: u64) -> Self {
        Self {
            queries,
            session: None,
            now_us,
            random: SplitMix64::of_decision(now_us, 0),
            waits_for: None,
        }
    }
}

impl GuestState {
    pub(crate) fn begin_call(&mut self, budget: CallBudget, decision: Option<DecisionData>) {
        self.limits.begin_call();
        self.meter = CallMeter::new(budget);
        self.decision = decision;
        self.watch.begin();
    }

    /// Begins an import's call with its arguments.
    pub(crate) fn host_call(&mut self, call: impl FnOnce() -> HostCall) -> CallHandling {
        match &mut self.recorder {
            None => CallHandling::Live,
            Some(recorder) => recorder.host_call(call()),
        }
    }

    /// Returns the import's result: the recorded one in a replay, else that of `live`.
    pub(crate) fn result_of<T: RecordedResult>(
        &mut self,
        handling: CallHandling,
        live: impl FnOnce(&mut Self) -> T,
    ) -> T {
        match handling {
            CallHandling::Live => live(self),
            CallHandling::Recording(call) => {
                let result = live(self);
                if let Some(recorder) = &mut self.recorder {
                    recorder.record(call, result.clone().recorded());
                }
                result
            }
            CallHandling::Replayed(result) => result.and_then(T::of).unwrap_or_else(T::none),
        }
    }
}
