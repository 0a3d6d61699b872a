//! Experiments of the fleet: evidence summed over the routers, and verdicts that are decided once.

use std::collections::BTreeMap;

use agreement::{AgreedKey, AgreedKind};
use experiment::EvidenceTotals;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::recent::RecentReports;
use super::view::AgreedView;

/// Most bytes of a report with evidence.
const MOST_BYTES: usize = 1 << 20;
/// Most reports of evidence: of routers times trials.
const MOST_REPORTS: usize = 1_024;

/// Experiments of the active configuration.
pub trait TrialSource: Send + 'static {
    /// An experiment.
    type Trial: SharedTrial;

    /// Returns the experiments.
    fn trials(&self) -> Vec<Self::Trial>;
}

/// Experiment whose evidence and verdicts are shared.
pub trait SharedTrial: Send {
    /// Returns its facts.
    fn facts(&self) -> TrialFacts;

    /// Returns whether this router stopped or resumed a canary since the last call.
    fn take_changed(&self, arm: usize) -> bool;

    /// Returns the totals of this router's evidence.
    fn totals(&self) -> EvidenceTotals;

    /// Replaces the evidence of the other routers. Canaries that the sum shows to be worse are stopped.
    fn set_others(&self, others: &[&EvidenceTotals]);

    /// Stops a canary, or resumes it without an order. Returns false if it is so already.
    fn apply_stop(&self, arm: usize, order: Option<&StopOrder>) -> bool;
}

/// Facts of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialFacts {
    /// Identity, the same at every router with the same route, policies and rule.
    pub identity: String,
    /// Pool.
    pub pool: String,
    /// Matching rule of the route.
    pub route: String,
    /// Arms, the control first.
    pub arms: Vec<ArmFacts>,
}

/// Facts of an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmFacts {
    /// Name of the policy.
    pub policy: String,
    /// Id of its active version.
    pub version: String,
    /// Set for a canary that is stopped.
    pub is_stopped: bool,
    /// Reason of the stop.
    pub reason: String,
}

/// Order of another router to stop a canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopOrder {
    /// Id of the router that decided.
    pub by: String,
    /// Its reason.
    pub reason: String,
}

/// Agreed decision on a canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CanaryDecision {
    pool: String,
    route: String,
    policy: String,
    version: String,
    stopped: bool,
    reason: String,
    /// Number of resumptions: evidence from before is not added.
    epoch: u64,
}

/// Evidence of a router, as it reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct EvidenceReport {
    epoch: u64,
    totals: EvidenceTotals,
}

/// Evidence of the other routers, and what this one reported.
#[derive(Debug, Default)]
pub(crate) struct TrialExchange {
    /// By trial and router.
    others: RecentReports<(String, String), EvidenceReport, MOST_REPORTS>,
    reported: BTreeMap<String, Vec<u8>>,
}

/// Result of a look at the experiments.
#[derive(Debug, Default)]
pub(crate) struct TrialLook {
    /// Decisions of this router.
    pub(crate) decided: Vec<(AgreedKey, Value)>,
    /// Reports by trial that differ from the last ones.
    pub(crate) reports: Vec<(String, Vec<u8>)>,
}

impl TrialExchange {
    /// Records the evidence of another router. Returns false if it cannot be read.
    pub(crate) fn learned(&mut self, trial: String, router: String, bytes: &[u8]) -> bool {
        if bytes.len() > MOST_BYTES {
            return false;
        }
        match serde_json::from_slice(bytes) {
            Ok(report) => {
                self.others.set((trial, router), report);
                true
            }
            Err(_) => false,
        }
    }

    /// Forgets what was reported and learned: the store opens again.
    pub(crate) fn opened(&mut self) {
        *self = Self::default();
    }

    /// Obeys the agreed decisions, applies the others' evidence, and finds news of this router. Evidence is reported
    /// only with `reports`.
    pub(crate) fn look<T: SharedTrial>(
        &mut self,
        trials: &[T],
        view: &AgreedView,
        reports: bool,
    ) -> TrialLook {
        let mut look = TrialLook::default();
        let mut current = Vec::new();
        for trial in trials {
            let facts = trial.facts();
            let mut epoch = 0;
            for (at, arm) in facts.arms.iter().enumerate().skip(1) {
                let subject = format!("{}\n{}", facts.identity, arm.policy);
                let key = AgreedKey::of(AgreedKind::Canary, &subject);
                let known = view.followed_one(&key);
                let agreed: Option<CanaryDecision> =
                    known.and_then(|entry| serde_json::from_value(entry.value.clone()).ok());
                let agreed_epoch = agreed.as_ref().map_or(0, |agreed| agreed.epoch);
                epoch += agreed_epoch;
                let is_stopped = agreed.as_ref().is_some_and(|agreed| agreed.stopped);
                if trial.take_changed(at) {
                    if is_stopped != arm.is_stopped {
                        let decision = decision(&facts, arm, agreed_epoch);
                        epoch += decision.epoch - agreed_epoch;
                        look.decided.push((key, json!(decision)));
                    }
                } else if let (Some(agreed), Some(entry)) = (&agreed, known) {
                    let order = agreed.stopped.then(|| StopOrder {
                        by: entry.by.clone(),
                        reason: agreed.reason.clone(),
                    });
                    trial.apply_stop(at, order.as_ref());
                }
            }
            let name = AgreedKey::of(AgreedKind::Canary, &facts.identity).to_string();
            let name = name.split('.').next_back().unwrap_or_default().to_owned();
            let of_trial = self.others.iter().filter(|((trial, _), _)| *trial == name);
            let others: Vec<&EvidenceTotals> = of_trial
                .filter(|(_, report)| report.epoch == epoch)
                .map(|(_, report)| &report.totals)
                .collect();
            trial.set_others(&others);
            if reports {
                let totals = trial.totals();
                let report = serde_json::to_vec(&EvidenceReport { epoch, totals }).unwrap_or_default();
                if self.reported.get(&name) != Some(&report) {
                    look.reports.push((name.clone(), report));
                }
            }
            current.push(name);
        }
        self.reported.retain(|trial, _| current.contains(trial));
        look
    }

    /// Records a report that the store has.
    pub(crate) fn reported(&mut self, trial: String, report: Vec<u8>) {
        self.reported.insert(trial, report);
    }
}

fn decision(facts: &TrialFacts, arm: &ArmFacts, epoch: u64) -> CanaryDecision {
    CanaryDecision {
        pool: facts.pool.clone(),
        route: facts.route.clone(),
        policy: arm.policy.clone(),
        version: arm.version.clone(),
        stopped: arm.is_stopped,
        reason: arm.reason.clone(),
        epoch: if arm.is_stopped { epoch } else { epoch + 1 },
    }
}
