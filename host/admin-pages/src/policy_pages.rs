//! `POST /admin/policies/NAME/rollback` and `/resume`: an operator goes back to the version before, and forth again.
//!
//! A change is sent to the reload thread, the only writer, and is active when the answer is sent.

use std::sync::mpsc::SyncSender;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};

use crate::access::{AdminKey, Listener};
use crate::control::{PolicyAction, PolicyChange, RefusedPolicyChange, ReloadCommand, send_command};
use crate::refusal::{Refusal, only_post};
use observability::error_chain;
use policy_store::{PolicyReport, RollbackError};

/// The pages, on the operators' listener only.
#[derive(Debug, Clone)]
pub(crate) struct PolicyPages {
    pub(crate) key: AdminKey,
    pub(crate) commands: SyncSender<ReloadCommand>,
}

impl PolicyPages {
    pub(crate) fn pages(self) -> Router {
        let roll_back = |State(pages): State<Self>, Path(policy), headers| async move {
            pages.answer(policy, PolicyAction::RollBack, &headers).await
        };
        let resume = |State(pages): State<Self>, Path(policy), headers| async move {
            pages.answer(policy, PolicyAction::Resume, &headers).await
        };
        Router::new()
            .route(
                "/admin/policies/{policy}/rollback",
                post(roll_back).fallback(only_post),
            )
            .route(
                "/admin/policies/{policy}/resume",
                post(resume).fallback(only_post),
            )
            .with_state(self)
    }

    async fn answer(&self, policy: String, action: PolicyAction, headers: &HeaderMap) -> Response<Body> {
        match self.change(PolicyChange { policy, action }, headers).await {
            Ok(report) => Json(report).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn change(&self, change: PolicyChange, headers: &HeaderMap) -> Result<PolicyReport, Refusal> {
        self.key.check(headers, Listener::Operators)?;
        let answered = send_command(&self.commands, |answer| ReloadCommand::Policy(change, answer)).await?;
        answered.map_err(|refused| refusal(&refused))
    }
}

fn refusal(refused: &RefusedPolicyChange) -> Refusal {
    let (status, code) = match refused {
        RefusedPolicyChange::Rollback(RollbackError::NoSuchPolicy(_)) => {
            (StatusCode::NOT_FOUND, "policy_not_found")
        }
        RefusedPolicyChange::Rollback(RollbackError::Pipeline(..)) => (StatusCode::CONFLICT, "is_pipeline"),
        RefusedPolicyChange::Rollback(RollbackError::NothingBefore(_)) => {
            (StatusCode::CONFLICT, "no_version_before")
        }
        RefusedPolicyChange::Unavailable { .. } => (StatusCode::CONFLICT, "policy_unavailable"),
        RefusedPolicyChange::Plan(_) => (StatusCode::CONFLICT, "not_applicable"),
    };
    Refusal::new(status, code, error_chain(refused))
}
