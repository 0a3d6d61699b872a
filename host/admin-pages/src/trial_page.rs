//! `GET /admin/trials`: what the arms of routes do to their requests, and what shadows would have done. An operator
//! resumes a canary that was stopped with `POST /admin/canaries/NAME/resume`.

use std::sync::Arc;
use std::time::SystemTime;

use admin_views::{ChangeCause, ChangeKind, NewChange};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use live_updates::ChangeLog;
use proxy::{
    ArmReport, Disagreement, Look, Measure, Pick, ShadowReport, Shortage, SnapshotCell, StopCause,
    StopReport, TimesReport, TrialReport,
};
use serde_json::{Value, json};

use crate::access::{AdminKey, Listener};
use crate::refusal::{Refusal, only_get, only_post};

/// The pages, on the operators' listener only.
#[derive(Debug, Clone)]
pub(crate) struct TrialPages {
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) key: AdminKey,
    pub(crate) changes: ChangeLog,
}

impl TrialPages {
    pub(crate) fn pages(self) -> Router {
        let show = |State(pages): State<Self>| async move { pages.show() };
        let resume =
            |State(pages): State<Self>, Path(policy), headers| async move { pages.answer(policy, &headers) };
        Router::new()
            .route("/admin/trials", get(show).fallback(only_get))
            .route(
                "/admin/canaries/{policy}/resume",
                post(resume).fallback(only_post),
            )
            .with_state(self)
    }

    fn show(&self) -> Response<Body> {
        let snapshot = self.cell.load();
        let trials: Vec<Value> = snapshot.trials().iter().map(trial).collect();
        let shadows: Vec<Value> = snapshot.shadows().iter().map(shadow).collect();
        Json(json!({ "generation": snapshot.generation().0, "trials": trials, "shadows": shadows }))
            .into_response()
    }

    fn answer(&self, policy: String, headers: &HeaderMap) -> Response<Body> {
        match self.resume(&policy, headers) {
            Ok(resumed) => Json(json!({ "policy": policy, "resumed": resumed })).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    fn resume(&self, policy: &str, headers: &HeaderMap) -> Result<usize, Refusal> {
        self.key.check(headers, Listener::Operators)?;
        match self.cell.load().resume_canaries(policy) {
            0 => {
                let message = format!("no canary `{policy}` is stopped");
                Err(Refusal::new(StatusCode::NOT_FOUND, "not_stopped", message))
            }
            resumed => {
                let summary = format!("an operator resumed the canary `{policy}`");
                let change = NewChange::applied(ChangeKind::CanaryResumed, ChangeCause::Api, summary);
                let generation = self.cell.load().generation().0;
                self.changes.note(change.in_generation(generation));
                Ok(resumed)
            }
        }
    }
}

fn trial(trial: &TrialReport) -> Value {
    let rule = trial.rule;
    json!({
        "pool": trial.pool, "route": trial.route, "route_number": trial.number, "since_unix_ms": unix_ms(trial.since),
        "rule": {
            "ttft_margin": rule.ttft_margin, "error_margin": rule.error_margin, "confidence": rule.confidence,
            "least": rule.least, "consecutive_failures": rule.consecutive_failures, "stop": rule.stop,
        },
        "arms": trial.arms.iter().map(|shown| arm(shown, trial)).collect::<Vec<_>>(),
    })
}

fn arm(arm: &ArmReport, trial: &TrialReport) -> Value {
    let side = &arm.side;
    let state = match (&arm.stopped, arm.is_control) {
        (Some(_), _) => "stopped",
        (None, true) => "control",
        (None, false) => "running",
    };
    let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    json!({
        "policy": arm.policy, "version": &*arm.version, "share": arm.share, "state": state,
        "requests": side.requests, "failed": side.failed, "failed_in_a_row": side.failed_in_a_row,
        "error_share": share(side.failed, side.judged),
        "ttft": side.ttft.map(times), "between_tokens": side.between.map(times),
        "prompt_tokens": side.prompt_tokens, "cached_tokens": side.cached_tokens,
        "cached_share": share(side.cached_tokens, side.prompt_tokens),
        "verdict": (!arm.is_control).then(|| arm.verdict.as_str()),
        "ttft_look": arm.ttft.map(|found| look(Measure::Ttft, found)),
        "errors_look": arm.errors.map(|found| look(Measure::Errors, found)),
        "waits_for": arm.shortages.iter().map(|shown| shortage(shown, trial)).collect::<Vec<_>>(),
        "stopped": arm.stopped.as_ref().map(stop),
    })
}

/// Returns the missing evidence of a comparison, with its arm.
fn shortage(shortage: &Shortage, trial: &TrialReport) -> Value {
    let arm = trial.arms.get(shortage.arm).map(|arm| &*arm.policy);
    json!({
        "measure": shortage.measure.as_str(), "policy": arm, "of": shortage.of.as_str(),
        "have": shortage.have, "need": shortage.need,
    })
}

fn times(times: TimesReport) -> Value {
    let ms = |seconds: f64| seconds * 1e3;
    json!({
        "count": times.count, "mean_ms": ms(times.mean),
        "p50_ms": ms(times.p50), "p95_ms": ms(times.p95), "p99_ms": ms(times.p99),
    })
}

fn look(measure: Measure, look: Look) -> Value {
    json!({
        "measure": measure.as_str(), "verdict": look.verdict.as_str(),
        "worse_by": look.estimate, "at_least": look.low, "at_most": look.high,
        "look": look.number, "samples": look.samples, "control_samples": look.control_samples,
    })
}

fn stop(stop: &StopReport) -> Value {
    let (reason, failures, found) = match stop.cause {
        None => ("agreed", None, None),
        Some(StopCause::ConsecutiveFailures { failures, .. }) => {
            ("consecutive-failures", Some(failures), None)
        }
        Some(StopCause::Compared(measure, found)) => ("worse", None, Some(look(measure, found))),
    };
    json!({
        "at_unix_ms": unix_ms(stop.at), "reason": reason, "failures": failures, "margin": stop.margin, "look": found,
        "router": stop.by,
    })
}

fn shadow(shadow: &ShadowReport) -> Value {
    let results: serde_json::Map<String, Value> = shadow
        .results
        .iter()
        .map(|(result, count)| ((*result).to_owned(), json!(count)))
        .collect();
    let both = |[shadow, active]: [u64; 2]| json!({ "shadow": shadow, "active": active });
    json!({
        "pool": shadow.pool, "route": shadow.route, "route_number": shadow.number, "policy": shadow.policy,
        "version": &*shadow.version,
        "decisions": results, "dropped": shadow.dropped,
        "matched_tokens": both(shadow.matched), "tokens_ahead": both(shadow.ahead),
        "predicted_ttft": shadow.predicted.map(|(decisions, [shadow, active])| {
            json!({ "decisions": decisions, "shadow_ms": shadow, "active_ms": active })
        }),
        "decision_us": shadow.decision_seconds.map(|seconds| seconds * 1e6),
        "disagreements": shadow.disagreements.iter().map(disagreement).collect::<Vec<_>>(),
    })
}

fn disagreement(disagreement: &Disagreement) -> Value {
    let pick = |pick: &Pick| {
        json!({
            "worker": &*pick.worker, "matched_tokens": pick.matched, "tokens_ahead": pick.ahead,
            "predicted_ttft_ms": pick.ttft_ms, "requests": pick.requests,
        })
    };
    json!({
        "request": disagreement.request, "at_unix_ms": unix_ms(disagreement.at),
        "active": pick(&disagreement.active), "shadow": pick(&disagreement.shadow),
    })
}

fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
