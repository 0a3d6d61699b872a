//! Decisions of other policies, made by this one instead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use decision_log::{DecidedLine, HostCallLine, PhaseName, PolicyLine};
use placement::{CallFault, check_answer};
use policy_runtime::WasmPolicy;
use routing::{
    CandidateFeature, Decision, DecisionQueries, FaultKind, FeaturePlan, Offer, Policy, PolicyDescription,
    RequestFeature, Role, Tier, Verdict, Worker, WorkerId,
};
use serde::Serialize;

use super::columns::Columns;
use super::log::RecordedDecision;
use super::time_outs::TimeOuts;

/// Choices of the policy in decisions of others.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ComparisonReport {
    pub(super) decisions: u64,
    /// Made by these policies.
    pub(super) recorded_policies: BTreeMap<String, u64>,
    /// Decisions in which both chose a worker.
    pub(super) compared: u64,
    /// Decisions among them with the same worker, or pair.
    pub(super) agreed: u64,
    /// Tokens of the prompts that the recorded choice has, over what could be compared, where they are known.
    pub(super) matched_recorded: u64,
    /// Matched tokens at its own choice.
    pub(super) matched_replayed: u64,
    /// Verdicts other than a worker.
    pub(super) held: u64,
    pub(super) rejected: u64,
    pub(super) passed: u64,
    /// Answers that the router refuses.
    pub(super) invalid: u64,
    pub(super) faults: BTreeMap<String, u64>,
    /// Decisions in which only it chose a worker.
    pub(super) nothing_recorded: u64,
    /// Reasons for which the policy could not be called, or its verdict does not count.
    pub(super) not_comparable: BTreeMap<String, u64>,
    #[serde(skip)]
    pub(super) nanoseconds: Vec<u64>,
}

/// Positions of its numbers, or the names of those that were not recorded.
type ColumnsOrMissing = Result<Columns, Vec<String>>;

/// Result of a recorded call.
pub(super) struct AnsweredCall {
    pub(super) decision: Result<Decision, CallFault>,
    /// Figure of merit of its choice.
    pub(super) score: Option<f64>,
    ran_out_of_time: bool,
    queries: Arc<LoggedQueries>,
    nanoseconds: u64,
}

/// Policy that is called instead, beside the recorded one.
pub(super) struct ComparedPolicy<'a> {
    policy: &'a WasmPolicy,
    /// Columns by recorded policy.
    columns: Vec<(Arc<PolicyLine>, ColumnsOrMissing)>,
}

impl<'a> ComparedPolicy<'a> {
    pub(super) fn new(policy: &'a WasmPolicy) -> Self {
        Self {
            policy,
            columns: Vec::new(),
        }
    }

    pub(super) fn compare(
        &mut self,
        recorded: &RecordedDecision,
        other: &mut ComparisonReport,
        time_outs: &mut TimeOuts,
    ) {
        other.decisions += 1;
        *other
            .recorded_policies
            .entry(recorded.policy.name.clone())
            .or_default() += 1;
        let answered = self.answer(recorded).and_then(|answered| {
            time_outs.count(answered.ran_out_of_time);
            answered.if_recorded()
        });
        match answered {
            Ok(answered) => other.add(recorded, &answered),
            Err(why) => *other.not_comparable.entry(why).or_default() += 1,
        }
    }

    /// Returns the answer to a recorded call, or the reason why the policy cannot be called.
    pub(super) fn answer(&mut self, recorded: &RecordedDecision) -> Result<AnsweredCall, String> {
        self.check_part(recorded)?;
        let numbers = match self.columns(&recorded.policy) {
            Ok(columns) => columns.lay_out(recorded),
            Err(missing) => return Err(format!("not recorded: {}", missing.join(", "))),
        };
        let queries = Arc::new(LoggedQueries::of(recorded));
        let shared: Arc<dyn DecisionQueries> = Arc::clone(&queries) as _;
        let (answer, took) = recorded.timed_call(&numbers, &shared, |input| self.policy.decide(input));
        let ran_out_of_time = matches!(&answer, Err(fault) if fault.kind == FaultKind::Deadline);
        let roles: Vec<Role> = recorded.workers.iter().map(|worker| worker.spec().role).collect();
        let offer = match recorded.line.pair_or_alone {
            Some(alone) => Offer::Pair { roles: &roles, alone },
            None => Offer::One {
                candidates: roles.len(),
            },
        };
        let score = match &answer {
            Ok(Verdict::Route(choice)) => Some(choice.score),
            _ => None,
        };
        Ok(AnsweredCall {
            decision: check_answer(answer, offer),
            score,
            ran_out_of_time,
            queries,
            nanoseconds: took,
        })
    }

    /// Checks that the router would call the policy about such a part of a request.
    fn check_part(&self, recorded: &RecordedDecision) -> Result<(), String> {
        let pairs = self.policy.plan().pairs();
        match (recorded.line.pair_or_alone, recorded.line.phase) {
            (Some(_), _) if !pairs => {
                Err("one call placed both legs, which this policy does not do".to_owned())
            }
            (None, PhaseName::Prefill | PhaseName::Decode) if pairs => {
                Err("one leg was placed, and this policy places both in one call".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn columns(&mut self, recorded: &Arc<PolicyLine>) -> &ColumnsOrMissing {
        let known = self
            .columns
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, recorded));
        let at = known.unwrap_or_else(|| {
            let columns = Columns::find(self.policy.plan(), recorded);
            self.columns.push((Arc::clone(recorded), columns));
            self.columns.len() - 1
        });
        &self.columns[at].1
    }
}

impl AnsweredCall {
    /// Returns the call, or the reason why its answer does not count.
    pub(super) fn if_recorded(self) -> Result<Self, String> {
        let missed = self.queries.missed();
        match missed.is_empty() {
            true => Ok(self),
            false => Err(format!("not recorded: {}", missed.join(", "))),
        }
    }
}

impl ComparisonReport {
    fn add(&mut self, recorded: &RecordedDecision, answered: &AnsweredCall) {
        self.nanoseconds.push(answered.nanoseconds);
        match &answered.decision {
            Ok(Decision::Route(route)) => {
                self.chose(recorded, &answered.queries, route.row(), route.prefill());
            }
            Ok(Decision::Queue(_)) => self.held += 1,
            Ok(Decision::Reject(_)) => self.rejected += 1,
            Ok(Decision::Pass) => self.passed += 1,
            Err(CallFault::Verdict(_)) => self.invalid += 1,
            Err(CallFault::Policy(fault)) => {
                *self.faults.entry(fault.kind.as_str().to_owned()).or_default() += 1;
            }
        }
    }

    fn chose(
        &mut self,
        recorded: &RecordedDecision,
        queries: &LoggedQueries,
        row: usize,
        prefill: Option<usize>,
    ) {
        let Some(DecidedLine::Route {
            worker,
            prefill: prefilled,
        }) = recorded.line.decided
        else {
            self.nothing_recorded += 1;
            return;
        };
        self.compared += 1;
        let ids = &recorded.line.ids;
        let chosen = (ids[row], prefill.map(|row| ids[row]));
        self.agreed += u64::from(chosen == (worker, prefilled));
        let Some(matched) = queries.on(Tier::Shared) else {
            return;
        };
        let tokens = |id: u32| {
            let row = ids.iter().position(|candidate| *candidate == id);
            row.and_then(|row| matched.get(row)).copied().unwrap_or(0)
        };
        // The prompt is computed where it is prefilled.
        self.matched_recorded += u64::from(tokens(prefilled.unwrap_or(worker)));
        self.matched_replayed += u64::from(tokens(chosen.1.unwrap_or(chosen.0)));
    }
}

/// Results of host calls, as far as the log has them.
struct LoggedQueries {
    ids: Vec<WorkerId>,
    workers: Vec<Arc<Worker>>,
    calls: Vec<HostCallLine>,
    /// Matched tokens on the device, the host, and any tier.
    matched: [Option<Vec<u32>>; 3],
    /// Number of other held requests, if it was recorded.
    held: Option<f64>,
    model: String,
    path: String,
    missed: Mutex<BTreeSet<String>>,
}

impl LoggedQueries {
    fn of(recorded: &RecordedDecision) -> Self {
        let column = |feature: CandidateFeature| {
            let name = feature.name().into_owned();
            let plan = FeaturePlan::resolve(&[], &[name]).ok()?;
            let numbers = Columns::find(&plan, &recorded.policy).ok()?.lay_out(recorded);
            // The list is empty if the prompt's tokens are unknown.
            let is_known = numbers.iter().any(|tokens| !tokens.is_nan());
            let numbers = numbers.into_iter().filter(|_| is_known);
            Some(numbers.map(|tokens| tokens as u32).collect())
        };
        let held = || {
            let plan = FeaturePlan::resolve(&[RequestFeature::PoolQueued.name().to_owned()], &[]).ok()?;
            let numbers = Columns::find(&plan, &recorded.policy).ok()?.lay_out(recorded);
            numbers.first().copied()
        };
        let logged = |wanted: fn(Tier) -> bool| {
            recorded.line.transcript.iter().find_map(|line| match line {
                HostCallLine::Matched { tier, tokens } if wanted(tier.0) => Some(tokens.clone()),
                _ => None,
            })
        };
        let device = logged(|tier| tier == Tier::Device).or_else(|| column(CandidateFeature::PrefixDevice));
        let host = logged(|tier| tier == Tier::Host).or_else(|| column(CandidateFeature::PrefixHost));
        let any = logged(|tier| matches!(tier, Tier::Disk | Tier::Shared))
            .or_else(|| column(CandidateFeature::PrefixAny));
        Self {
            ids: recorded.workers.iter().map(|worker| worker.id()).collect(),
            workers: recorded.workers.clone(),
            calls: recorded.line.transcript.clone(),
            matched: [device, host, any],
            held: held(),
            model: recorded.line.model.clone(),
            path: recorded.line.path.clone(),
            missed: Mutex::default(),
        }
    }

    fn on(&self, tier: Tier) -> Option<&[u32]> {
        let at = match tier {
            Tier::Device => 0,
            Tier::Host => 1,
            Tier::Disk | Tier::Shared => 2,
        };
        self.matched[at].as_deref()
    }

    fn miss(&self, call: String) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.insert(call);
    }

    fn missed(&self) -> Vec<String> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        missed.iter().cloned().collect()
    }
}

impl DecisionQueries for LoggedQueries {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.workers.iter().find(|worker| worker.id() == id).cloned()
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        let matched = self.on(tier).map(<[u32]>::to_vec);
        matched.unwrap_or_else(|| {
            self.miss("index.matched".to_owned());
            vec![0; self.workers.len()]
        })
    }

    fn holders(&self, tokens: u32) -> u32 {
        let logged = self.calls.iter().find_map(|line| match line {
            HostCallLine::Holders {
                tokens: recorded,
                holders,
            } if *recorded == tokens => Some(*holders),
            _ => None,
        });
        let counted = || {
            let holders = self.on(Tier::Shared)?.iter().filter(|held| **held >= tokens);
            u32::try_from(holders.count()).ok()
        };
        logged.or_else(counted).unwrap_or_else(|| {
            self.miss("index.holders".to_owned());
            0
        })
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        let numbers = 2 * self.ids.len();
        let logged = self.calls.iter().find_map(|line| match line {
            HostCallLine::Ahead {
                most: recorded,
                ahead,
            } if recorded == most && ahead.len() == numbers => Some(ahead.clone()),
            _ => None,
        });
        logged.unwrap_or_else(|| {
            // Nothing is ahead where no request is held.
            if self.held != Some(0.0) {
                self.miss("queue.ahead".to_owned());
            }
            vec![0; numbers]
        })
    }

    fn header(&self, name: &str) -> Option<String> {
        let logged = self.calls.iter().find_map(|line| match line {
            HostCallLine::Header {
                name: recorded,
                value,
            } if recorded.eq_ignore_ascii_case(name) => Some(value.clone()),
            _ => None,
        });
        logged.unwrap_or_else(|| {
            self.miss(format!("inspect.header({name:?})"));
            None
        })
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::log::Log;
    use super::*;

    /// Returns the answers of a log about two workers, with this number of held requests in it.
    fn queries(held: Option<f64>) -> LoggedQueries {
        let held = held.map(|held| ("pool.queued", json!(held)));
        queries_of(held, None)
    }

    /// Returns the answers of a log about two workers that hold these tokens of the prompt.
    fn holding(tokens: [Value; 2]) -> LoggedQueries {
        queries_of(None, Some(("prefix.any-tokens", tokens)))
    }

    fn queries_of(request: Option<(&str, Value)>, candidate: Option<(&str, [Value; 2])>) -> LoggedQueries {
        let (request_columns, mut numbers): (Vec<&str>, Vec<Value>) = request.into_iter().unzip();
        let (columns, by_worker): (Vec<&str>, Vec<[Value; 2]>) = candidate.into_iter().unzip();
        numbers.extend(by_worker.into_iter().flatten());
        let worker = |id: u32| {
            let labels = json!({});
            json!({ "worker": { "id": id, "name": "w", "role": "mixed", "weight": 1.0, "labels": labels } })
        };
        let lines = [
            json!({ "log": { "schema": 1, "conductor": "0", "run": "0", "unix-us": 0 } }),
            worker(7),
            worker(9),
            json!({ "policy": {
                "id": 1, "name": "mine", "sha256": "ab", "version": "1", "params": "{}",
                "request-columns": request_columns, "columns": columns, "more-request-columns": [], "more-columns": [],
            } }),
            json!({ "decision": {
                "request": "r", "seq": 1, "attempt": 0, "phase": "mixed", "session": null, "now-us": 0, "unix-us": 9,
                "model": "m", "path": "/v1/completions", "pool": "chat", "route": 1, "policy": 1, "fallback": false,
                "ids": [7, 9], "numbers": numbers, "verdict": "pass", "took-us": 5.0,
                "transcript": [{ "ask": "queue.ahead", "most": [100, 200], "ahead": [1, 80, 3, 0] }],
            } }),
        ];
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("decisions.jsonl")];
        std::fs::write(&files[0], lines.map(|line| line.to_string()).join("\n")).unwrap();
        LoggedQueries::of(&Log::open(&files).next().unwrap().unwrap())
    }

    #[test]
    fn the_work_ahead_is_the_recorded_one_of_the_same_limits() {
        let queries = queries(Some(4.0));
        assert_eq!(queries.ahead(&[100, 200]), [1, 80, 3, 0]);
        assert!(queries.missed().is_empty());
        assert_eq!(queries.ahead(&[100, 201]), [0; 4], "two numbers a candidate");
        assert_eq!(queries.missed(), ["queue.ahead"]);
    }

    #[test]
    fn no_tokens_are_matched_where_the_recorded_prompt_is_unknown() {
        let unknown = holding([json!("NaN"), json!("NaN")]);
        assert_eq!((unknown.matched(Tier::Disk), unknown.holders(0)), (Vec::new(), 0));
        let known = holding([json!(64.0), json!("NaN")]);
        assert_eq!((known.matched(Tier::Disk), known.holders(64)), (vec![64, 0], 1));
        assert!(unknown.missed().is_empty() && known.missed().is_empty());
    }

    #[test]
    fn nothing_is_ahead_where_the_log_has_no_held_request() {
        let nothing_held = queries(Some(0.0));
        assert_eq!(nothing_held.ahead(&[5, 5]), [0; 4]);
        assert!(nothing_held.missed().is_empty());
        let unknown = queries(None);
        assert_eq!(unknown.ahead(&[5, 5]), [0; 4]);
        assert_eq!(unknown.missed(), ["queue.ahead"]);
    }
}
