//! `POST /admin/reload`: reads the configuration and the policies again.

use std::sync::mpsc::SyncSender;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;

use crate::access::AdminKey;
use crate::control::{ReloadAnswer, ReloadCommand, ReloadOutcome, send_command};
use crate::refusal::{Refusal, only_post};

/// The page.
#[derive(Debug, Clone)]
pub(crate) struct ReloadPage {
    pub(crate) key: AdminKey,
    pub(crate) commands: SyncSender<ReloadCommand>,
}

impl ReloadPage {
    pub(crate) fn pages(self) -> Router {
        let reload = |State(page): State<Self>, headers: HeaderMap| async move {
            match page.reload(&headers).await {
                Ok(answer) => reload_page(&answer),
                Err(refusal) => refusal.into_response(),
            }
        };
        Router::new()
            .route("/admin/reload", post(reload).fallback(only_post))
            .with_state(self)
    }

    async fn reload(&self, headers: &HeaderMap) -> Result<ReloadAnswer, Refusal> {
        self.key.check_reload(headers)?;
        send_command(&self.commands, ReloadCommand::Reload).await
    }
}

/// Returns the outcome of a reload with the page `/admin/config`. A refused configuration is an error status.
pub(crate) fn reload_page(ReloadAnswer { outcome, report }: &ReloadAnswer) -> Response {
    let mut page = json!(report);
    page["outcome"] = json!(outcome.as_str());
    page["changed"] = json!(outcome.has_changes());
    match outcome {
        ReloadOutcome::Applied(changes) => page["changes"] = json!(changes),
        ReloadOutcome::Unchanged => {}
        ReloadOutcome::Waiting { policies } => page["awaits"] = json!(policies),
        ReloadOutcome::Refused { step, problems } => {
            let errors = problems
                .iter()
                .filter(|problem| problem.severity == "error")
                .count();
            let plural = if errors == 1 { "" } else { "s" };
            let message = format!(
                "the configuration is refused while {step}, with {errors} error{plural}; the old one stays"
            );
            page["step"] = json!(step.as_str());
            page["problems"] = json!(problems);
            let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "config_refused", message);
            page["error"] = refusal.to_value();
            return (refusal.status, Json(page)).into_response();
        }
    }
    Json(page).into_response()
}
