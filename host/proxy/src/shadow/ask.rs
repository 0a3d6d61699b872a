//! What a shadow would have decided.

use std::sync::Arc;
use std::time::{Duration, Instant};

use routing::{
    Chosen, CircuitChange, Decision, DecisionInput, DecisionQueries, FaultKind, Offer, Phase, RequestFacts,
    Role, check,
};
use tracing::{debug, warn};

use super::Shadow;
use super::captured::Captured;
use super::log::{self, Asked};
use super::record::{Answer, Pick};
use crate::candidates::{Candidates, Roles};
use crate::decide::Seat;
use crate::proxy::Proxy;
use crate::queries::CallQueries;

/// Asks every shadow of the request's route.
pub(super) fn all(proxy: &Proxy, captured: &Captured) {
    let shadows = captured.request.route().shadows.iter();
    for shadow in shadows.flat_map(|shadows| &shadows.each) {
        let mut asking = Asking {
            proxy,
            captured,
            shadow,
            version: None,
            took: Duration::ZERO,
        };
        let answer = asking.answer();
        let Asking { version, took, .. } = asking;
        let result = shadow.record.add(captured, &answer, took);
        let asked = Asked {
            answer,
            result,
            version,
            took,
        };
        log::write(captured, shadow, &asked);
    }
}

/// One shadow, asked about one request.
struct Asking<'a> {
    proxy: &'a Proxy,
    captured: &'a Captured,
    shadow: &'a Shadow,
    /// Who was asked first.
    version: Option<Arc<str>>,
    /// Time of its calls.
    took: Duration,
}

impl Asking<'_> {
    fn answer(&mut self) -> Answer {
        let Some(chosen) = self.shadow.policy.choose(self.proxy.now_us()) else {
            return Answer::Resting;
        };
        self.version = Some(Arc::clone(&chosen.version().id));
        let field = self.captured.field;
        let pairs = chosen.version().policy.plan().pairs();
        if !field.splits || pairs {
            let phase = Phase::Mixed;
            return self
                .call(chosen, phase, field.roles)
                .unwrap_or_else(|answer| answer);
        }
        self.by_phase(chosen).unwrap_or_else(|answer| answer)
    }

    /// The prefill worker, then the decode worker.
    fn by_phase(&mut self, chosen: Chosen<'_>) -> Result<Answer, Answer> {
        let begins = self.call(chosen, Phase::Prefill, Roles::BEGIN)?;
        let Answer::Placed { answers, .. } = begins else {
            return Ok(begins);
        };
        if self.captured.candidates.roles[answers] == Role::Mixed {
            return Ok(begins);
        }
        let decode = self.shadow.policy.choose(self.proxy.now_us());
        let decode = self.call(decode.ok_or(Answer::Resting)?, Phase::Decode, Roles::DECODE)?;
        Ok(match decode {
            Answer::Placed { answers: decodes, .. } => Answer::Placed {
                answers: decodes,
                prefills: Some(answers),
            },
            other => other,
        })
    }

    /// One call; rows of the answer are those of all that was captured. The error is an answer that ends it, too.
    fn call(&mut self, chosen: Chosen<'_>, phase: Phase, roles: Roles) -> Result<Answer, Answer> {
        let captured = self.captured;
        let (rows, mut candidates) = captured.candidates.only(roles);
        if rows.is_empty() {
            return Err(Answer::Passed);
        }
        let plan = chosen.version().policy.plan();
        let facts = RequestFacts {
            seq: captured.request.seq,
            run: captured.request.run,
            session: captured.request.session,
            phase,
            attempt: captured.standing.attempt,
            now_us: captured.now_us,
        };
        let queries = CallQueries::begin(self.proxy, &captured.request, false, &mut candidates);
        if !candidates.matches.is_empty() {
            queries.know(std::mem::take(&mut candidates.matches));
        }
        let queries = Arc::new(queries);
        let asked = (&*captured.request, captured.standing);
        candidates.lay_out(self.proxy, plan, asked, queries.asked());
        let shared: Arc<dyn DecisionQueries> = Arc::clone(&queries) as _;
        let input = DecisionInput {
            request: &facts,
            ids: &queries.ids,
            numbers: &candidates.numbers,
            queries: &shared,
        };
        let asked = Instant::now();
        let verdict = chosen.version().policy.decide(&input);
        self.took += asked.elapsed();
        let decision = match verdict {
            Ok(verdict) => check(verdict, self.offer(phase, &candidates))
                .map_err(|invalid| self.failed(chosen, FaultKind::InvalidVerdict, &invalid))?,
            Err(fault) => return Err(self.failed(chosen, fault.kind, &fault)),
        };
        chosen.succeeded(self.proxy.now_us());
        Ok(match decision {
            Decision::Route(route) => Answer::Placed {
                answers: rows[route.row()],
                prefills: route.prefill().map(|row| rows[row]),
            },
            Decision::Queue(_) => Answer::Held,
            Decision::Reject(_) => Answer::Rejected,
            Decision::Pass => Answer::Passed,
        })
    }

    fn offer<'c>(&self, phase: Phase, candidates: &'c Candidates) -> Offer<'c> {
        if phase == Phase::Mixed && self.captured.field.splits {
            return Offer::Pair {
                roles: &candidates.roles,
                alone: self.captured.request.allowed().alone,
            };
        }
        Offer::One {
            candidates: candidates.members.len(),
        }
    }

    fn failed(
        &self,
        chosen: Chosen<'_>,
        kind: FaultKind,
        error: &(dyn std::error::Error + 'static),
    ) -> Answer {
        let (policy, version) = (self.shadow.policy.name(), &*chosen.version().id);
        debug!(
            policy,
            version,
            fault = kind.as_str(),
            error,
            "a shadow failed to decide"
        );
        if let CircuitChange::Opened(rest) = chosen.failed(self.proxy.now_us()) {
            warn!(
                policy,
                version,
                fault = kind.as_str(),
                error,
                ?rest,
                "too many faults: this shadow rests"
            );
        }
        Answer::Fault(kind)
    }
}

impl Captured {
    /// A row as it is told.
    pub(super) fn pick(&self, row: usize) -> Pick {
        let member = &self.request.pool().members[self.candidates.members[row]];
        let matched = self.candidates.matches.get(row).map(|found| found.any_tokens);
        let prompt = self.request.prompt_tokens();
        let cached = matched.unwrap_or(0).min(prompt);
        let load = self.candidates.loads[row];
        let ahead = load.prefill_tokens + u64::from(prompt - cached);
        let cost = member.worker.load().cost();
        let predicted = cost.prefill_ms(u32::try_from(ahead).unwrap_or(u32::MAX), cached);
        Pick {
            worker: member.worker.spec().name.clone(),
            matched,
            ahead,
            ttft_ms: (!predicted.is_nan()).then_some(predicted),
            requests: load.requests,
        }
    }

    /// The rows of the placement that was made, the prefill worker's second.
    pub(super) fn placed(&self) -> Option<(usize, Option<usize>)> {
        let prefills = match self.placement.prefills {
            Some(seat) => Some(self.row(seat)?),
            None => None,
        };
        Some((self.row(self.placement.answers)?, prefills))
    }

    fn row(&self, seat: Seat) -> Option<usize> {
        self.candidates
            .members
            .iter()
            .position(|member| *member == seat.member)
    }
}
