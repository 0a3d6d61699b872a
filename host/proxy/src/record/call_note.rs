//! One call of a policy as it is kept: taken down on the request's thread, made into a line elsewhere.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use routing::{
    CandidateFeature, Decision, FeaturePlan, InvalidVerdict, Offer, Origin, PipelineSpec, Policy,
    PolicyFault, RequestFacts, Transcript, Verdict, Worker, WorkerId, WorkerSpec, check,
};

use super::line::{DecidedLine, DecisionLine, FaultLine, PolicyLine, VerdictLine, WorkerLine};
use super::note_line::{NoteLine, RoleName};
use super::number::{Number, Numbers};
use super::pipeline_line::{PipelineLine, WeighingLine};
use super::trace::Trace;

/// Everything about one call.
#[derive(Debug)]
pub(crate) struct CallNote {
    pub(crate) facts: RequestFacts,
    pub(crate) subject: Subject,
    pub(crate) is_fallback: bool,
    /// Of the candidates, row by row.
    pub(crate) workers: Vec<NotedWorker>,
    pub(crate) numbers: Vec<f64>,
    pub(crate) more_numbers: Vec<f64>,
    pub(crate) transcript: Transcript,
    pub(crate) answer: Result<Verdict, PolicyFault>,
    /// What the answer comes to, and what was offered.
    pub(crate) checked: Checked,
    pub(crate) took: Duration,
    pub(crate) at: SystemTime,
}

/// A worker as a note has it: without its load and what was learnt of it, which go when it leaves the fleet.
#[derive(Debug, Clone)]
pub(crate) struct NotedWorker {
    pub(super) id: WorkerId,
    pub(super) spec: Arc<WorkerSpec>,
}

impl NotedWorker {
    pub(crate) fn of(worker: &Worker) -> Self {
        Self {
            id: worker.id(),
            spec: Arc::clone(worker.shared_spec()),
        }
    }
}

/// Who was asked, and about which columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) pipeline: Option<Arc<PipelineSpec>>,
    pub(crate) plan: FeaturePlan,
    pub(crate) more: FeaturePlan,
}

/// An answer, held against what was offered.
#[derive(Debug)]
pub(crate) struct Checked {
    /// There where both legs were to be placed: whether a decode worker may do it alone.
    pair_or_alone: Option<bool>,
    decision: Option<Result<Decision, InvalidVerdict>>,
}

impl Checked {
    pub(crate) fn of(answer: &Result<Verdict, PolicyFault>, offer: Offer<'_>) -> Self {
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
    pub(crate) fn of(policy: &dyn Policy, all_columns: bool) -> Self {
        let plan = policy.plan();
        Self {
            name: policy.name().to_owned(),
            origin: policy.origin().cloned(),
            pipeline: policy.pipeline().map(|pipeline| Arc::clone(pipeline.spec())),
            plan: plan.clone(),
            more: if all_columns {
                plan.rest()
            } else {
                FeaturePlan::default()
            },
        }
    }

    /// Bytes that are held for it, besides its own; what it came from is the policy's.
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

    pub(super) fn line(&self, id: u32) -> PolicyLine {
        let request = |plan: &FeaturePlan| plan.request().iter().map(|of| of.name().to_owned()).collect();
        let candidate =
            |plan: &FeaturePlan| plan.candidate().iter().map(|of| of.name().into_owned()).collect();
        let origin = self.origin.as_ref();
        PolicyLine {
            id,
            name: self.name.clone(),
            sha256: origin.map(|origin| origin.sha256.to_string()),
            version: origin.map(|origin| origin.version.to_string()),
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
    /// Bytes that are held for it and for nothing else.
    pub(super) fn bytes(&self) -> usize {
        let said = match &self.answer {
            // The checked answer has the reason again.
            Ok(Verdict::Reject(rejection)) => 2 * rejection.reason.capacity(),
            Ok(_) => 0,
            Err(fault) => fault.detail.capacity(),
        };
        size_of::<Self>()
            + self.subject.bytes()
            + size_of_val(&*self.workers)
            + size_of_val(&*self.numbers)
            + size_of_val(&*self.more_numbers)
            // A list that grew may have room for as many again.
            + 2 * size_of_val(self.transcript.notes())
            + self.transcript.bytes()
            + said
    }

    /// As the log has it; `policy` is the number of its policy's line.
    pub(super) fn line(&self, trace: &Trace, policy: u32) -> DecisionLine {
        let facts = &self.facts;
        let (decided, refused) = self.outcome();
        DecisionLine {
            request: trace.id.clone(),
            seq: facts.seq,
            attempt: facts.attempt,
            phase: facts.phase.into(),
            session: facts.session.map(|session| format!("{session:016x}")),
            now_us: facts.now_us,
            unix_us: unix_us(self.at),
            model: trace.model.clone(),
            path: trace.path.to_string(),
            pool: trace.pool.to_string(),
            route: trace.route,
            policy,
            fallback: self.is_fallback,
            pair_or_alone: self.checked.pair_or_alone,
            ids: self.workers.iter().map(|worker| worker.id.0).collect(),
            numbers: Numbers(self.numbers.clone()),
            more_numbers: Numbers(self.more_numbers.clone()),
            transcript: self.transcript.notes().iter().filter_map(NoteLine::of).collect(),
            weighing: self.transcript.weighing().map(WeighingLine::from),
            truncated: self.transcript.is_truncated(),
            verdict: self.answer.as_ref().ok().map(VerdictLine::from),
            fault: self.answer.as_ref().err().map(FaultLine::from),
            refused,
            decided,
            took_us: Number(self.took.as_nanos() as f64 / 1e3),
        }
    }

    /// What was acted on, or why it was not.
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

pub(super) fn worker_line(worker: &NotedWorker) -> WorkerLine {
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

/// Text of at most so many bytes.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    text[..text.floor_char_boundary(most)].into()
}

/// Microseconds since 1970.
pub(crate) fn unix_us(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_call_count_as_memory() {
        let bytes = |columns: &[&str]| {
            let subject = Subject {
                name: "mine".to_owned(),
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
