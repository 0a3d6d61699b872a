//! `POST /admin/explain/ID/replay`: another loaded policy decides a recorded call again, without effect.
//!
//! The policy runs apart from the one that serves: its memory is empty, and its calls are in no metric.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use conductor_tools::explain::PAGE;
use conductor_tools::policy::{ReplayError, ReplayedCall, replay_call};
use policy_runtime::WasmPolicy;
use serde_json::Value;

use super::state::ExplorePages;
use crate::access::Listener;
use crate::body::{BodyLimits, invalid, object};
use crate::explain_page::not_kept;
use crate::refusal::Refusal;

/// End of the path, behind the request's id.
const SUFFIX: &str = "/replay";
const LIMITS: BodyLimits = BodyLimits::slow(16 << 10);
const EXAMPLE: &str = r#"{"policy": "cache-aware"}"#;

/// Returns the page. Its path is that of the explanation, since an id may have slashes.
pub(super) fn pages() -> Router<ExplorePages> {
    let replay = |State(pages): State<ExplorePages>, Path(id): Path<String>, request| async move {
        pages.replay(&id, request).await
    };
    Router::new().route(&format!("{PAGE}{{*id}}"), post(replay))
}

impl ExplorePages {
    async fn replay(self, id: &str, request: Request) -> Response<Body> {
        match Box::pin(self.replayed(id, request)).await {
            Ok(replayed) => Json(replayed).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn replayed(&self, id: &str, request: Request) -> Result<ReplayedCall, Refusal> {
        let (head, body) = request.into_parts();
        self.key.check(&head.headers, Listener::Operators)?;
        let Some(id) = id.strip_suffix(SUFFIX) else {
            let message = format!("this path takes GET only; POST to it with {SUFFIX} at the end");
            return Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                message,
            ));
        };
        let turn = Arc::clone(&self.turns.replays).try_acquire_owned();
        let turn = turn.map_err(|_| Refusal::busy())?;
        let body = object(&LIMITS.collect(body).await?, EXAMPLE)?;
        let Some(name) = body.get("policy").and_then(Value::as_str) else {
            return Err(invalid("policy", "`policy` is missing, or no text"));
        };
        let call = match body.get("call") {
            None | Some(Value::Null) => None,
            Some(call) => {
                let call = call.as_u64().and_then(|call| usize::try_from(call).ok());
                Some(call.ok_or_else(|| invalid("call", "`call` is no number of a call, from 0"))?)
            }
        };
        let policy = self.apart(name)?;
        let explained = self.recorder.explain(id).ok_or_else(|| not_kept(id))?;
        let run = self.recorder.run();
        let replaying = move || {
            let replayed = replay_call(&policy, &explained, call, run);
            drop(turn);
            replayed
        };
        let replayed = tokio::task::spawn_blocking(replaying).await;
        let replayed = replayed.map_err(|_| Refusal::busy())?;
        replayed.map_err(|error| refusal(&error))
    }

    /// Returns the active version of a policy, apart from the one that serves.
    fn apart(&self, name: &str) -> Result<WasmPolicy, Refusal> {
        let policies = self.status.policies().policies;
        let Some(report) = policies.iter().find(|report| report.name == name) else {
            let message = format!("there is no policy `{name}`");
            let refusal = Refusal::new(StatusCode::NOT_FOUND, "policy_not_found", message);
            return Err(refusal.of("policy"));
        };
        if report.pipeline.is_some() {
            let message = format!("`{name}` is a pipeline: replay one of its scorers");
            return Err(Refusal::new(StatusCode::CONFLICT, "is_pipeline", message));
        }
        let active = report.active_component().ok_or_else(|| {
            let message = format!("no version of `{name}` is loaded");
            Refusal::new(StatusCode::CONFLICT, "policy_unavailable", message)
        })?;
        Ok(active.apart())
    }
}

fn refusal(error: &ReplayError) -> Refusal {
    let message = format!("failed to {error}");
    match error {
        ReplayError::NoCall { .. } => invalid("call", message),
        ReplayError::NotComparable(_) => Refusal::new(StatusCode::CONFLICT, "not_comparable", message),
    }
}
