//! Record of one policy call: filled on the request's thread, formatted by the writer thread.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use routing::{
    CandidateFeature, Decision, FeaturePlan, InvalidVerdict, Offer, Origin, PipelineSpec, Policy,
    PolicyFault, RequestFacts, Transcript, Verdict, Worker, WorkerId, WorkerSpec, check,
};

use crate::fault_line::FaultLine;
use crate::host_call_line::{HostCallLine, RoleName};
use crate::line::{DecidedLine, DecisionLine, PolicyLine, VerdictLine, WorkerLine};
use crate::number::{Number, Numbers};
use crate::pipeline_line::{PipelineLine, WeighingLine};
use crate::request_note::RequestNote;
use crate::text::unix_us;

/// Inputs and result of one policy call.
#[derive(Debug)]
pub struct CallNote {
    /// Facts about the request.
    pub facts: RequestFacts,
    /// The called policy.
    pub subject: Subject,
    /// Set if the native fallback decided.
    pub is_fallback: bool,
    /// Candidates in row order.
    pub workers: Vec<LoggedWorker>,
    /// Feature block as the policy received it.
    pub numbers: Vec<f64>,
    /// Additional columns, recorded only.
    pub more_numbers: Vec<f64>,
    /// Host calls of the policy.
    pub transcript: Transcript,
    /// Result of the call.
    pub answer: Result<Verdict, PolicyFault>,
    /// The verdict after validation.
    pub checked: Checked,
    /// Duration of the call.
    pub took: Duration,
    /// Time of the call.
    pub at: SystemTime,
}

/// Id and configuration of a worker, without its load, which is freed when the worker leaves the fleet.
#[derive(Debug, Clone)]
pub struct LoggedWorker {
    pub(crate) id: WorkerId,
    pub(crate) spec: Arc<WorkerSpec>,
}

impl LoggedWorker {
    /// Returns the logged parts of a worker.
    #[must_use]
    pub fn of(worker: &Worker) -> Self {
        Self {
            id: worker.id(),
            spec: Arc::clone(worker.shared_spec()),
        }
    }
}

/// The called policy and its columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Name in the configuration.
    pub name: String,
    /// Id of the called version. `None` for the fallback.
    pub version_id: Option<Arc<str>>,
    /// Component of the policy. `None` for a native one.
    pub origin: Option<Arc<Origin>>,
    /// Configuration of a pipeline.
    pub pipeline: Option<Arc<PipelineSpec>>,
    /// Columns of the policy.
    pub plan: FeaturePlan,
    /// Additional columns, recorded only.
    pub more: FeaturePlan,
}

/// A verdict validated against the offer.
#[derive(Debug)]
pub struct Checked {
    /// Set if the call places both legs: whether a decode worker can serve the request alone.
    pair_or_alone: Option<bool>,
    decision: Option<Result<Decision, InvalidVerdict>>,
}

impl Checked {
    /// Validates an answer against the offer.
    #[must_use]
    pub fn of(answer: &Result<Verdict, PolicyFault>, offer: Offer<'_>) -> Self {
        Self {
            pair_or_alone: match offer {
                Offer::One { .. } => None,
                Offer::Pair { alone, .. } => Some(alone),
            },
            decision: answer.as_ref().ok().map(|verdict| check(verdict.clone(), offer)),
        }
    }
}

impl Subject {
    /// Describes a policy. `version_id`: `None` for the fallback.
    #[must_use]
    pub fn of(policy: &dyn Policy, version_id: Option<&Arc<str>>, all_columns: bool) -> Self {
        let plan = policy.plan();
        Self {
            name: policy.name().to_owned(),
            version_id: version_id.cloned(),
            origin: policy.origin().cloned(),
            pipeline: policy.pipeline().map(Arc::clone),
            plan: plan.clone(),
            more: if all_columns {
                plan.rest()
            } else {
                FeaturePlan::default()
            },
        }
    }

    /// Returns its heap bytes. The origin and the id belong to the version.
    fn bytes(&self) -> usize {
        let of = |plan: &FeaturePlan| {
            let names = plan.candidate().iter().map(|column| match column {
                CandidateFeature::Label(key) => key.len(),
                _ => 0,
            });
            size_of_val(plan.request()) + size_of_val(plan.candidate()) + names.sum::<usize>()
        };
        self.name.len() + of(&self.plan) + of(&self.more)
    }

    pub(crate) fn line(&self, id: u32) -> PolicyLine {
        let request = |plan: &FeaturePlan| plan.request().iter().map(|of| of.name().to_owned()).collect();
        let candidate =
            |plan: &FeaturePlan| plan.candidate().iter().map(|of| of.name().into_owned()).collect();
        let origin = self.origin.as_ref();
        PolicyLine {
            id,
            name: self.name.clone(),
            sha256: origin.map(|origin| origin.sha256.to_string()),
            version: origin.map(|origin| origin.version.to_string()),
            version_id: self.version_id.as_deref().map(str::to_owned),
            params: origin.map(|origin| origin.params.to_string()),
            request_columns: request(&self.plan),
            columns: candidate(&self.plan),
            more_request_columns: request(&self.more),
            more_columns: candidate(&self.more),
            pipeline: self.pipeline.as_deref().map(PipelineLine::from),
        }
    }
}

impl CallNote {
    /// Returns its total bytes.
    pub(crate) fn bytes(&self) -> usize {
        let text = match &self.answer {
            // The validated answer contains the reason again.
            Ok(Verdict::Reject(rejection)) => 2 * rejection.reason.capacity(),
            Ok(_) => 0,
            Err(fault) => fault.detail.capacity(),
        };
        size_of::<Self>()
            + self.subject.bytes()
            + size_of_val(&*self.workers)
            + size_of_val(&*self.numbers)
            + size_of_val(&*self.more_numbers)
            // The capacity of a grown list can be twice its length.
            + 2 * size_of_val(self.transcript.calls())
            + self.transcript.bytes()
            + text
    }

    /// Formats the call. `policy` is the id of its policy line.
    pub(crate) fn line(&self, request: &RequestNote, policy: u32) -> DecisionLine {
        let facts = &self.facts;
        let (decided, refused) = self.outcome();
        DecisionLine {
            request: request.id.clone(),
            seq: facts.seq,
            attempt: facts.attempt,
            phase: facts.phase.into(),
            session: facts.session.map(|session| format!("{session:016x}")),
            now_us: facts.now_us,
            unix_us: unix_us(self.at),
            model: request.model.clone(),
            path: request.path.to_string(),
            pool: request.pool.to_string(),
            route: request.route,
            policy,
            fallback: self.is_fallback,
            pair_or_alone: self.checked.pair_or_alone,
            ids: self.workers.iter().map(|worker| worker.id.0).collect(),
            numbers: Numbers(self.numbers.clone()),
            more_numbers: Numbers(self.more_numbers.clone()),
            transcript: self
                .transcript
                .calls()
                .iter()
                .filter_map(HostCallLine::of)
                .collect(),
            weighing: self.transcript.weighing().map(WeighingLine::from),
            truncated: self.transcript.is_truncated(),
            verdict: self.answer.as_ref().ok().map(VerdictLine::from),
            fault: self.answer.as_ref().err().map(FaultLine::from),
            refused,
            decided,
            took_us: Number(self.took.as_nanos() as f64 / 1e3),
        }
    }

    /// Returns `true` if the call placed the request on a worker.
    pub(crate) fn is_placed(&self) -> bool {
        matches!(self.checked.decision, Some(Ok(Decision::Route(_))))
    }

    /// Returns the executed decision, or the reason for rejecting the verdict.
    fn outcome(&self) -> (Option<DecidedLine>, Option<String>) {
        let id = |row: usize| self.workers.get(row).map(|worker| worker.id.0);
        let decided = match &self.checked.decision {
            Some(Ok(Decision::Route(route))) => id(route.row()).map(|worker| DecidedLine::Route {
                worker,
                prefill: route.prefill().and_then(id),
            }),
            Some(Ok(Decision::Queue(hold))) => Some(DecidedLine::Queue {
                ask_again_ms: hold.ask_again_ms,
            }),
            Some(Ok(Decision::Reject(rejection))) => Some(DecidedLine::Reject {
                status: rejection.status,
            }),
            Some(Ok(Decision::Pass)) | None => None,
            Some(Err(invalid)) => return (None, Some(invalid.to_string())),
        };
        (decided, None)
    }
}

/// Formats a worker.
pub(crate) fn worker_line(worker: &LoggedWorker) -> WorkerLine {
    let spec = &worker.spec;
    let labels = spec.labels.iter();
    WorkerLine {
        id: worker.id.0,
        name: spec.name.to_string(),
        role: RoleName(spec.role),
        weight: Number(spec.weight),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_call_count_towards_its_memory() {
        let bytes = |columns: &[&str]| {
            let subject = Subject {
                name: "mine".to_owned(),
                version_id: None,
                origin: None,
                pipeline: None,
                plan: FeaturePlan::resolve(&[], columns).unwrap(),
                more: FeaturePlan::default(),
            };
            subject.bytes()
        };
        assert_eq!(bytes(&[]), 4);
        assert_eq!(bytes(&["load.requests"]), 4 + size_of::<CandidateFeature>());
        assert_eq!(bytes(&["label.zone"]), 8 + size_of::<CandidateFeature>());
    }
}
