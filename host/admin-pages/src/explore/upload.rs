//! `PUT /admin/policies/NAME`: checks a component by the built-in scenarios, then replaces the policy's file in the
//! policy folder. The reload thread finds it there, as it finds every other new file.
//!
//! A refused upload changes nothing. One upload runs at a time, apart from the request threads.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::put;
use axum::{Json, Router};
use bytes::Bytes;
use conductor_tools::policy::{UploadCheck, UploadedComponent, check_upload};
use observability::error_chain;
use policy_runtime::PolicyEngine;
use policy_store::{PolicyReport, UploadError, UploadTarget};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::info;

use crate::access::AdminKey;
use crate::body::BodyLimits;
use crate::control::{ReloadCommand, Status, send_command};
use crate::refusal::{Refusal, only_put};

/// Limits of a component.
const LIMITS: BodyLimits = BodyLimits::slow(16 << 20);
/// Time for the new version to become active. The file is stored in any case.
const ACTIVATION: Duration = Duration::from_secs(60);
/// Target of the log lines.
const LOG_TARGET: &str = "conductor::explore::upload";

/// The page.
#[derive(Debug, Clone)]
pub(crate) struct UploadPage {
    key: AdminKey,
    status: Status,
    engine: PolicyEngine,
    commands: SyncSender<ReloadCommand>,
    turn: Arc<Semaphore>,
}

/// A component that passed the check.
struct CheckedUpload {
    target: UploadTarget,
    sha256: String,
    check: UploadCheck,
    bytes: Bytes,
    /// Kept until the file is stored.
    turn: OwnedSemaphorePermit,
}

/// Refusal of an upload, with the problems of its component.
struct RefusedUpload {
    refusal: Refusal,
    check: Option<UploadCheck>,
}

impl From<Refusal> for RefusedUpload {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, check: None }
    }
}

impl UploadPage {
    pub(crate) fn new(
        key: AdminKey,
        status: Status,
        engine: PolicyEngine,
        commands: SyncSender<ReloadCommand>,
    ) -> Self {
        Self {
            key,
            status,
            engine,
            commands,
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn pages(self) -> Router {
        let upload = |State(page): State<Self>, Path(policy), request| async move {
            match Box::pin(page.upload(policy, request)).await {
                Ok(answer) => Json(answer).into_response(),
                Err(refused) => refused.into_response(),
            }
        };
        Router::new()
            .route("/admin/policies/{policy}", put(upload).fallback(only_put))
            .with_state(self)
    }

    async fn upload(&self, policy: String, request: Request) -> Result<Value, RefusedUpload> {
        let (head, body) = request.into_parts();
        self.key.check_configured(&head.headers)?;
        check_type(&head.headers)?;
        let target = self.target(&policy)?;
        // Before the body is read: all uploads together have the memory of one.
        let turn = Arc::clone(&self.turn)
            .try_acquire_owned()
            .map_err(|_| running())?;
        let bytes = LIMITS.collect(body).await?;
        let sha256 = target.permit(&bytes).map_err(|error| refusal(&error))?;
        let checked = self.check(target, sha256, bytes, turn).await?;
        if !checked.check.is_ok() {
            return Err(refused(checked.check));
        }
        let stored = tokio::task::spawn_blocking(move || store(checked)).await;
        let (target, sha256, check) = stored.map_err(|_| Refusal::busy())??;
        info!(target: LOG_TARGET, policy = target.name(), sha256, "a policy was uploaded");
        let report = self.activate(target.name()).await;
        Ok(answer(&target, &sha256, &check, report.as_ref()))
    }

    fn target(&self, policy: &str) -> Result<UploadTarget, Refusal> {
        let explore = self.status.policies().explore;
        let target = explore.ok_or_else(Refusal::busy)?.uploads.target(policy);
        target.map_err(|error| refusal(&error))
    }

    /// Runs the scenarios apart from the request threads. The turn ends with them, even if the client has left.
    async fn check(
        &self,
        target: UploadTarget,
        sha256: String,
        bytes: Bytes,
        turn: OwnedSemaphorePermit,
    ) -> Result<CheckedUpload, Refusal> {
        let engine = self.engine.clone();
        let checking = move || {
            let component = UploadedComponent {
                name: target.name(),
                bytes: &bytes,
                settings: target.settings(),
                scores: target.scores(),
            };
            let check = check_upload(&engine, &component);
            CheckedUpload {
                target,
                sha256,
                check,
                bytes,
                turn,
            }
        };
        let checked = tokio::task::spawn_blocking(checking).await;
        checked.map_err(|_| {
            let message = "the compiler panicked at the component (its message is on stderr)";
            Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "policy_refused", message)
        })
    }

    /// Requests a reload, and returns the policy after it.
    async fn activate(&self, policy: &str) -> Option<PolicyReport> {
        let reloaded = send_command(&self.commands, ReloadCommand::Reload);
        // Where the thread is busy, it looks for new files soon.
        let _ = tokio::time::timeout(ACTIVATION, reloaded).await;
        let mut policies = self.status.policies().policies.into_iter();
        policies.find(|report| report.name == policy)
    }
}

/// Replaces the file.
fn store(upload: CheckedUpload) -> Result<(UploadTarget, String, UploadCheck), Refusal> {
    let CheckedUpload {
        target,
        sha256,
        check,
        bytes,
        turn,
    } = upload;
    target.store(&bytes).map_err(|error| refusal(&error))?;
    drop(turn);
    Ok((target, sha256, check))
}

fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_wasm = kind.is_some_and(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/wasm")
    });
    if is_wasm {
        return Ok(());
    }
    let message = "send the component as Content-Type: application/wasm";
    Err(Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content_type_not_wasm",
        message,
    ))
}

fn running() -> Refusal {
    let message = "another upload is being checked: try again";
    Refusal::new(StatusCode::CONFLICT, "upload_running", message)
}

fn refused(check: UploadCheck) -> RefusedUpload {
    let first = check.problems.first();
    let first = first.map_or("", |problem| &problem.message);
    let count = check.problems.len();
    let plural = if count == 1 { "" } else { "s" };
    let message =
        format!("the component is refused for {count} problem{plural}, and nothing is written: {first}");
    RefusedUpload {
        refusal: Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "policy_refused", message),
        check: Some(check),
    }
}

fn refusal(error: &UploadError) -> Refusal {
    let message = format!("failed to {}", error_chain(error));
    let (status, code) = match error {
        UploadError::Name(_) => (StatusCode::BAD_REQUEST, "policy_name_invalid"),
        UploadError::NoFolder(_) => (StatusCode::CONFLICT, "no_policy_dir"),
        UploadError::NotOfFolder { .. } => (StatusCode::CONFLICT, "not_in_policy_dir"),
        UploadError::NotPermitted { .. } => (StatusCode::CONFLICT, "policy_not_permitted"),
        UploadError::Write { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "policy_not_written"),
    };
    Refusal::new(status, code, message)
}

impl RefusedUpload {
    fn into_response(self) -> Response<Body> {
        let Some(check) = self.check else {
            return self.refusal.into_response();
        };
        let mut page = json!(check);
        page["error"] = self.refusal.to_value();
        (self.refusal.status, Json(page)).into_response()
    }
}

/// Returns the answer to a stored upload. The new version is active unless something else holds it back.
fn answer(target: &UploadTarget, sha256: &str, check: &UploadCheck, report: Option<&PolicyReport>) -> Value {
    let mut page = json!(check);
    let is_active = report.is_some_and(|report| report.sha256.as_deref() == Some(sha256));
    page["policy"] = json!(target.name());
    page["file"] = json!(target.path().display().to_string());
    page["sha256"] = json!(sha256);
    page["active"] = json!(is_active);
    page["version"] = json!(report.and_then(|report| report.version.as_ref()));
    page["problem"] = json!(report.and_then(|report| report.problem.as_ref()));
    page
}
