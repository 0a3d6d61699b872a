//! Pages of the configuration file: its history with differences, the file itself, the check of an edit, and an edit.

use std::sync::mpsc::SyncSender;

use admin_views::{DiffError, redacted_diff, text_sha256};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, IF_MATCH};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use conductor_config::redacted;
use local_files::ConfigSource;
use observability::error_chain;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::AdminKey;
use crate::body::BodyLimits;
use crate::control::{
    CheckReport, ConfigTexts, FileAction, FileAnswer, FileEdit, RefusedEdit, ReloadCommand, send_command,
};
use crate::me_page::NO_KEY;
use crate::refusal::{Refusal, only_get, only_get_or_put, only_post};
use crate::reload_page::reload_page;

/// Longest body with an edited text: a file of the largest size with every second character escaped.
const LIMITS: BodyLimits = BodyLimits {
    longest: 4 << 20,
    ..BodyLimits::COMMAND
};
/// Longest reason of an operator, in characters.
const LONGEST_REASON: usize = 256;

/// The pages, on the operators' listener only.
#[derive(Debug, Clone)]
pub(crate) struct ConfigPages {
    pub(crate) key: AdminKey,
    pub(crate) commands: SyncSender<ReloadCommand>,
    pub(crate) source: ConfigSource,
    pub(crate) texts: ConfigTexts,
}

/// Body of a request with an edited text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    text: String,
    reason: Option<String>,
}

impl ConfigPages {
    pub(crate) fn pages(self) -> Router {
        let history = |State(pages): State<Self>| async move { pages.history() };
        let diff =
            |State(pages): State<Self>, Path(id): Path<String>| async move { shown(pages.diff(&id).await) };
        let read = |State(pages): State<Self>, headers| async move { shown(pages.read(headers).await) };
        let write = |State(pages): State<Self>, request| async move { pages.write(request).await };
        let check = |State(pages): State<Self>, request| async move { shown(pages.check(request).await) };
        Router::new()
            .route("/admin/config/history", get(history).fallback(only_get))
            .route("/admin/config/history/{id}/diff", get(diff).fallback(only_get))
            .route(
                "/admin/config/file",
                get(read).put(write).fallback(only_get_or_put),
            )
            .route("/admin/config/check", post(check).fallback(only_post))
            .with_state(self)
    }

    fn history(&self) -> Response<Body> {
        let rows = self.texts.lock().rows();
        Json(json!({ "generations": rows })).into_response()
    }

    async fn diff(&self, id: &str) -> Result<Value, Refusal> {
        // No text has the number 0.
        let pair = self.texts.lock().pair(id.parse().unwrap_or(0));
        let pair = pair.map_err(|error| {
            let (status, code) = match error {
                DiffError::Unknown(_) => (StatusCode::NOT_FOUND, "config_text_not_found"),
                DiffError::NotKept(_) => (StatusCode::NOT_FOUND, "config_text_not_kept"),
            };
            Refusal::new(status, code, error.to_string())
        })?;
        let diff = tokio::task::spawn_blocking(move || pair.diff()).await;
        diff.map(|diff| json!(diff)).map_err(|_| Refusal::busy())
    }

    async fn read(&self, headers: HeaderMap) -> Result<Value, Refusal> {
        let shows_secrets = self.key.check_secrets(&headers)?;
        let source = self.source.clone();
        let read = move || (source.read(), source.check_writable());
        let read = tokio::task::spawn_blocking(read).await;
        let (text, writable) = read.map_err(|_| Refusal::busy())?;
        let text = text.map_err(|error| {
            let message = error_chain(&error);
            Refusal::new(StatusCode::CONFLICT, "config_unreadable", message)
        })?;
        let reason = writable.as_ref().err().map(|error| error_chain(error));
        let path = self.source.file().map(|path| path.display().to_string());
        if !shows_secrets {
            // Every caller that reaches the listener reads this.
            return Ok(json!({
                "path": path, "text": redacted(&text), "sha256": null, "writable": false, "reason": NO_KEY,
            }));
        }
        Ok(json!({
            "path": path, "text": text, "sha256": text_sha256(&text),
            "writable": writable.is_ok(), "reason": reason,
        }))
    }

    async fn check(&self, request: Request) -> Result<Value, Refusal> {
        let (_, body) = self.body(request).await?;
        let edit = FileEdit {
            text: body.text.clone(),
            action: FileAction::Check,
        };
        let FileAnswer::Checked(report) = self.edit(edit).await? else {
            return Err(Refusal::busy());
        };
        let page = tokio::task::spawn_blocking(move || check_page(*report, &body.text)).await;
        page.map_err(|_| Refusal::busy())
    }

    async fn write(&self, request: Request) -> Response<Body> {
        match self.written(request).await {
            Ok(FileAnswer::Written(answer)) => reload_page(&answer),
            Ok(FileAnswer::Checked(_)) => Refusal::busy().into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn written(&self, request: Request) -> Result<FileAnswer, Refusal> {
        let (headers, body) = self.body(request).await?;
        let expected = if_match(&headers)?;
        let reason = body
            .reason
            .map(|reason| reason.chars().take(LONGEST_REASON).collect());
        let action = FileAction::Write { expected, reason };
        self.edit(FileEdit {
            text: body.text,
            action,
        })
        .await
    }

    /// Checks access to the file, and reads the body.
    async fn body(&self, request: Request) -> Result<(HeaderMap, EditBody), Refusal> {
        let (head, body) = request.into_parts();
        self.key.check_configured(&head.headers)?;
        let body = LIMITS.collect(body).await?;
        let body = serde_json::from_slice(&body).map_err(|error| {
            let message = format!(
                "the body cannot be read: {error}; send {{\"text\": \"...\"}}, and a \"reason\" if you like"
            );
            Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message)
        })?;
        Ok((head.headers, body))
    }

    async fn edit(&self, edit: FileEdit) -> Result<FileAnswer, Refusal> {
        let answered = send_command(&self.commands, |answer| ReloadCommand::File(edit, answer)).await?;
        answered.map_err(|refused| refusal(&refused))
    }
}

fn refusal(refused: &RefusedEdit) -> Refusal {
    let (status, code) = match refused {
        RefusedEdit::Write(_) => (StatusCode::CONFLICT, "config_not_writable"),
        RefusedEdit::Read(_) => (StatusCode::CONFLICT, "config_unreadable"),
        RefusedEdit::Moved { .. } => (StatusCode::PRECONDITION_FAILED, "config_changed"),
    };
    Refusal::new(status, code, error_chain(refused))
}

/// Returns the SHA-256 in `If-Match`.
fn if_match(headers: &HeaderMap) -> Result<String, Refusal> {
    let value = headers.get(IF_MATCH).and_then(|value| value.to_str().ok());
    let missing = || {
        let message =
            "send If-Match with the `sha256` of the file that was edited: GET /admin/config/file has it";
        Refusal::new(StatusCode::PRECONDITION_REQUIRED, "if_match_missing", message)
    };
    let value = value.ok_or_else(missing)?.trim();
    Ok(value.trim_matches('"').to_ascii_lowercase())
}

fn check_page(report: CheckReport, text: &str) -> Value {
    let CheckReport {
        valid,
        problems,
        changes,
        needs_restart,
        current,
    } = report;
    let listed = changes.to_string();
    let changes: Vec<&str> = match changes.is_empty() {
        true => Vec::new(),
        false => listed.split("; ").collect(),
    };
    json!({
        "valid": valid, "problems": problems, "changes": changes, "needs_restart": needs_restart,
        "diff": redacted_diff(&current, text),
    })
}

/// Returns the answer, which no cache may keep.
fn shown(page: Result<Value, Refusal>) -> Response<Body> {
    let mut response = match page {
        Ok(page) => Json(page).into_response(),
        Err(refusal) => refusal.into_response(),
    };
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_read_with_and_without_quotes() {
        for (value, expected) in [("\"AB12\"", "ab12"), ("ab12", "ab12"), (" \"ab12\" ", "ab12")] {
            let headers = [(IF_MATCH, HeaderValue::from_static(value))];
            assert_eq!(if_match(&headers.into_iter().collect()).unwrap(), expected);
        }
        let refused = if_match(&HeaderMap::new()).unwrap_err();
        assert_eq!(refused.code, "if_match_missing");
    }
}
