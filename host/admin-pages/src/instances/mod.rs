//! `POST /instances/add` and `/instances/remove`: workers that come, go and change what they do while it runs.
//!
//! A change is sent to the reload thread, the only writer, and is active when the answer is sent.

mod add_remove;
mod drain;

use std::sync::mpsc::SyncSender;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use serde_json::json;

use crate::access::{AdminKey, Listener};
use crate::body::BodyLimits;
use crate::control::{InstanceAnswer, RefusedChange, ReloadCommand, send_command};
use crate::refusal::{Refusal, only_post};
use observability::error_chain;
use runtime_overrides::{ChangeError, InstanceChange};

/// The pages of one listener.
#[derive(Debug, Clone)]
pub(crate) struct Instances {
    pub(crate) key: AdminKey,
    pub(crate) commands: SyncSender<ReloadCommand>,
    pub(crate) listener: Listener,
}

impl Instances {
    /// Returns the pages that drain and resume a worker, for the operators' listener.
    pub(crate) fn drain_pages(self) -> Router {
        let drain =
            |State(pages): State<Self>, request| async move { pages.answer(request, drain::draining).await };
        let resume = |State(pages): State<Self>, request| async move {
            pages.answer(request, drain::resumption).await
        };
        Router::new()
            .route("/admin/workers/drain", post(drain).fallback(only_post))
            .route("/admin/workers/resume", post(resume).fallback(only_post))
            .with_state(self)
    }

    pub(crate) fn pages(self) -> Router {
        let add = |State(pages): State<Self>, request| async move {
            pages.answer(request, add_remove::addition).await
        };
        let remove = |State(pages): State<Self>, request| async move {
            pages.answer(request, add_remove::removal).await
        };
        Router::new()
            .route("/instances/add", post(add).fallback(only_post))
            .route("/instances/remove", post(remove).fallback(only_post))
            .with_state(self)
    }

    async fn answer(
        &self,
        request: Request<Body>,
        read: fn(&[u8]) -> Result<InstanceChange, Refusal>,
    ) -> Response<Body> {
        match self.change(request, read).await {
            Ok(answer) => show(&answer),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn change(
        &self,
        request: Request<Body>,
        read: fn(&[u8]) -> Result<InstanceChange, Refusal>,
    ) -> Result<InstanceAnswer, Refusal> {
        let (head, body) = request.into_parts();
        self.key.check(&head.headers, self.listener)?;
        let change = read(&BodyLimits::COMMAND.collect(body).await?)?;
        let answered = send_command(&self.commands, |answer| ReloadCommand::Instance(change, answer)).await?;
        answered.map_err(refusal)
    }
}

fn refusal(refused: RefusedChange) -> Refusal {
    let message = error_chain(&refused);
    let (status, code, param) = match refused {
        RefusedChange::Change(error) => class(&error),
        RefusedChange::Config(_) => (StatusCode::CONFLICT, "not_applicable", None),
    };
    let refusal = Refusal::new(status, code, message);
    match param {
        Some(param) => refusal.of(param),
        None => refusal,
    }
}

fn class(error: &ChangeError) -> (StatusCode, &'static str, Option<&'static str>) {
    match error {
        ChangeError::NoSuchPool { .. } => (StatusCode::NOT_FOUND, "pool_not_found", Some("pool")),
        ChangeError::NoSuchWorker { .. } => (StatusCode::NOT_FOUND, "worker_not_found", Some("worker")),
        ChangeError::WhichPool { .. } => (StatusCode::BAD_REQUEST, "pool_missing", Some("pool")),
        ChangeError::RoleNeedsPd { .. } => (StatusCode::BAD_REQUEST, "role_not_allowed", Some("type")),
        ChangeError::NoBootstrap { .. } => (
            StatusCode::BAD_REQUEST,
            "bootstrap_not_allowed",
            Some("bootstrap"),
        ),
        ChangeError::OtherPool { .. } => (StatusCode::CONFLICT, "in_another_pool", Some("pool")),
        ChangeError::OtherName { .. } => (StatusCode::CONFLICT, "has_another_name", Some("name")),
        ChangeError::NameTaken { .. } => (StatusCode::CONFLICT, "name_taken", Some("name")),
        ChangeError::OtherRole { .. } => (StatusCode::CONFLICT, "has_another_role", Some("type")),
        ChangeError::NotThere { .. } => (StatusCode::NOT_FOUND, "instance_not_found", Some("instance")),
        ChangeError::TooMany { .. } => (StatusCode::CONFLICT, "too_many_changes", None),
    }
}

fn show(answer: &InstanceAnswer) -> Response<Body> {
    let InstanceAnswer { done, generation } = answer;
    let page = json!({
        "message": done.message(),
        "change": done.changed.as_str(),
        "generation": generation.0,
        "pool": done.pool, "name": done.name, "url": done.url, "type": done.role.as_str(),
    });
    let mut response = Response::new(Body::from(page.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
