//! One call of a policy as it is kept: taken down on the request's thread, made into a line elsewhere.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use routing::{
    Decision, FeaturePlan, InvalidVerdict, Offer, Origin, Policy, PolicyFault, RequestFacts, Transcript,
    Verdict, Worker, check,
};

use super::line::{DecidedLine, DecisionLine, FaultLine, PolicyLine, VerdictLine, WorkerLine};
use super::note_line::{NoteLine, RoleName};
use super::number::{Number, Numbers};
use super::trace::Trace;

/// Most bytes of a policy's message.
const LONGEST_DETAIL: usize = 512;

/// Everything about one call.
#[derive(Debug)]
pub(crate) struct CallNote {
    pub(crate) facts: RequestFacts,
    pub(crate) subject: Subject,
    pub(crate) is_fallback: bool,
    /// Of the candidates, row by row.
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) numbers: Vec<f64>,
    pub(crate) more_numbers: Vec<f64>,
    pub(crate) transcript: Transcript,
    pub(crate) answer: Result<Verdict, PolicyFault>,
    /// What the answer comes to, and what was offered.
    pub(crate) checked: Checked,
    pub(crate) took: Duration,
    pub(crate) at: SystemTime,
}

/// Who was asked, and about which columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) origin: Option<Arc<Origin>>,
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
            plan: plan.clone(),
            more: if all_columns {
                plan.rest()
            } else {
                FeaturePlan::default()
            },
        }
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
        }
    }
}

impl CallNote {
    /// About as many bytes as it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.workers)
            + size_of_val(&*self.numbers)
            + size_of_val(&*self.more_numbers)
            + size_of_val(self.transcript.notes())
            + self.transcript.bytes()
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
            path: trace.path.to_owned(),
            pool: trace.pool.to_string(),
            route: trace.route,
            policy,
            fallback: self.is_fallback,
            pair_or_alone: self.checked.pair_or_alone,
            ids: self.workers.iter().map(|worker| worker.id().0).collect(),
            numbers: Numbers(self.numbers.clone()),
            more_numbers: Numbers(self.more_numbers.clone()),
            transcript: self.transcript.notes().iter().filter_map(NoteLine::of).collect(),
            truncated: self.transcript.is_truncated(),
            verdict: self.answer.as_ref().ok().map(VerdictLine::from),
            fault: self.answer.as_ref().err().map(|fault| FaultLine {
                kind: fault.kind.as_str().to_owned(),
                detail: cut(&fault.detail, LONGEST_DETAIL).into_owned(),
            }),
            refused,
            decided,
            took_us: Number(self.took.as_nanos() as f64 / 1e3),
        }
    }

    /// What was acted on, or why it was not.
    fn outcome(&self) -> (Option<DecidedLine>, Option<String>) {
        let id = |row: usize| self.workers.get(row).map(|worker| worker.id().0);
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

pub(super) fn worker_line(worker: &Worker) -> WorkerLine {
    let spec = worker.spec();
    let labels = spec.labels.iter();
    WorkerLine {
        id: worker.id().0,
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

pub(super) fn unix_us(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
