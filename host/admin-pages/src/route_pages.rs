//! `POST /admin/policies/NAME/shadow`, `/canary`, `/promote` and `/retract`: an operator tries a policy out on a route,
//! makes it the route's policy, or ends both.
//!
//! The change is sent to the reload thread, the only writer, and is active when the answer is sent.

use std::sync::mpsc::SyncSender;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;

use crate::access::{AdminKey, Listener};
use crate::body::BodyLimits;
use crate::control::{RefusedRouteChange, ReloadCommand, RouteAnswer, send_command};
use crate::refusal::{Refusal, only_post};
use conductor_config::share_parts;
use observability::error_chain;
use runtime_overrides::{RouteAction, RouteChange, RouteChangeError};

/// The pages, on the operators' listener only.
#[derive(Debug, Clone)]
pub(crate) struct RoutePages {
    pub(crate) key: AdminKey,
    pub(crate) commands: SyncSender<ReloadCommand>,
}

/// The body of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteBody {
    /// The route's number in the file, from 1.
    route: Option<usize>,
    /// Share of the requests that are sent to a shadow, up to 1.
    sample: Option<f64>,
    /// Percentage of the sessions, for a canary.
    percent: Option<f64>,
}

impl RoutePages {
    pub(crate) fn pages(self) -> Router {
        let shadow = |State(pages): State<Self>, Path(policy), request| async move {
            pages.answer(policy, request, shadow).await
        };
        let canary = |State(pages): State<Self>, Path(policy), request| async move {
            pages.answer(policy, request, canary).await
        };
        let promote = |State(pages): State<Self>, Path(policy), request| async move {
            pages.answer(policy, request, |_| Ok(RouteAction::Promote)).await
        };
        let retract = |State(pages): State<Self>, Path(policy), request| async move {
            pages.answer(policy, request, |_| Ok(RouteAction::Retract)).await
        };
        Router::new()
            .route(
                "/admin/policies/{policy}/shadow",
                post(shadow).fallback(only_post),
            )
            .route(
                "/admin/policies/{policy}/canary",
                post(canary).fallback(only_post),
            )
            .route(
                "/admin/policies/{policy}/promote",
                post(promote).fallback(only_post),
            )
            .route(
                "/admin/policies/{policy}/retract",
                post(retract).fallback(only_post),
            )
            .with_state(self)
    }

    async fn answer(
        &self,
        policy: String,
        request: Request,
        action: fn(&RouteBody) -> Result<RouteAction, Refusal>,
    ) -> Response<Body> {
        match self.change(policy, request, action).await {
            Ok(answer) => Json(answer).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn change(
        &self,
        policy: String,
        request: Request,
        action: fn(&RouteBody) -> Result<RouteAction, Refusal>,
    ) -> Result<RouteAnswer, Refusal> {
        let (head, body) = request.into_parts();
        self.key.check(&head.headers, Listener::Operators)?;
        let body = read(&BodyLimits::COMMAND.collect(body).await?)?;
        let change = RouteChange {
            policy,
            action: action(&body)?,
            route: body.route,
        };
        let answered = send_command(&self.commands, |answer| ReloadCommand::Route(change, answer)).await?;
        answered.map_err(|refused| refusal(&refused))
    }
}

/// Returns none for an empty body.
fn read(body: &[u8]) -> Result<RouteBody, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(RouteBody::default());
    }
    // A struct is also read from an array of its fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(invalid_json("the body is not a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| invalid_json(&format!("the body cannot be read: {error}")))
}

fn invalid_json(why: &str) -> Refusal {
    let message = format!("{why}; send for example {{\"route\": 1, \"percent\": 5}}");
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message)
}

fn shadow(body: &RouteBody) -> Result<RouteAction, Refusal> {
    match body.sample {
        Some(sample) if !(sample > 0.0 && sample <= 1.0) => {
            let message = format!("`sample` is {sample}: it must be above 0 and at most 1");
            Err(Refusal::new(StatusCode::BAD_REQUEST, "sample_invalid", message).of("sample"))
        }
        sample => Ok(RouteAction::Shadow(sample)),
    }
}

fn canary(body: &RouteBody) -> Result<RouteAction, Refusal> {
    let bad = |message: String| {
        Err(Refusal::new(StatusCode::BAD_REQUEST, "percent_invalid", message).of("percent"))
    };
    let Some(percent) = body.percent else {
        return bad(
            "`percent` is missing: say how many percent of the sessions the canary decides".to_owned(),
        );
    };
    match share_parts(percent) {
        Some(parts) => Ok(RouteAction::Canary(parts)),
        None => bad(format!(
            "`percent` is {percent}: it must be at least 0.01 and at most 100, with at most two decimals"
        )),
    }
}

fn refusal(refused: &RefusedRouteChange) -> Refusal {
    let message = error_chain(refused);
    let (status, code, param) = match refused {
        RefusedRouteChange::Fleet(_) => (StatusCode::CONFLICT, "fleet_not_ready", None),
        RefusedRouteChange::Alone(_) | RefusedRouteChange::Overtaken(_) => {
            (StatusCode::CONFLICT, "fleet_changed", None)
        }
        RefusedRouteChange::VersionNotTried { .. } => (StatusCode::CONFLICT, "version_not_tried", None),
        RefusedRouteChange::Change(error) => match error {
            RouteChangeError::NoSuchPolicy(_) => (StatusCode::NOT_FOUND, "policy_not_found", None),
            RouteChangeError::NoSuchRoute { .. } => (StatusCode::NOT_FOUND, "route_not_found", Some("route")),
            RouteChangeError::WhichRoute(_) => (StatusCode::BAD_REQUEST, "route_missing", Some("route")),
            RouteChangeError::NotTried(_) => (StatusCode::CONFLICT, "not_tried", None),
            RouteChangeError::Decides { .. } => (StatusCode::CONFLICT, "policy_decides", None),
            RouteChangeError::ByPhase(_) => (StatusCode::CONFLICT, "route_by_phase", None),
            RouteChangeError::Shares { .. } => (StatusCode::CONFLICT, "shares_too_large", Some("percent")),
            RouteChangeError::NothingToRetract(_) => (StatusCode::NOT_FOUND, "nothing_to_retract", None),
        },
        _ => (StatusCode::CONFLICT, "not_applicable", None),
    };
    let refusal = Refusal::new(status, code, message);
    match param {
        Some(param) => refusal.of(param),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_the_fleet_made_otherwise_has_a_code_of_its_own() {
        let code = |refused: RefusedRouteChange| refusal(&refused).code;
        let why = String::new;
        assert_eq!(code(RefusedRouteChange::Alone(why())), "fleet_changed");
        assert_eq!(code(RefusedRouteChange::Overtaken(why())), "fleet_changed");
        assert_eq!(code(RefusedRouteChange::Fleet(why())), "fleet_not_ready");
    }

    #[track_caller]
    fn check(
        body: &str,
        action: fn(&RouteBody) -> Result<RouteAction, Refusal>,
        expected: Result<RouteAction, &str>,
    ) {
        let found = read(body.as_bytes()).and_then(|body| action(&body));
        assert_eq!(found.map_err(|refusal| refusal.code), expected, "{body}");
    }

    #[test]
    fn bodies_are_read_within_their_bounds() {
        check("", shadow, Ok(RouteAction::Shadow(None)));
        check(
            r#"{"sample": 0.25, "route": 2}"#,
            shadow,
            Ok(RouteAction::Shadow(Some(0.25))),
        );
        for sample in ["0", "-1", "1.5"] {
            check(
                &format!(r#"{{"sample": {sample}}}"#),
                shadow,
                Err("sample_invalid"),
            );
        }
        check(r#"{"percent": 5.25}"#, canary, Ok(RouteAction::Canary(525)));
        check(r#"{"percent": 100}"#, canary, Ok(RouteAction::Canary(10_000)));
        for percent in ["0", "0.001", "100.1", "-5", "1.234"] {
            check(
                &format!(r#"{{"percent": {percent}}}"#),
                canary,
                Err("percent_invalid"),
            );
        }
        check("{}", canary, Err("percent_invalid"));
        for bad in ["[1]", "{", r#"{"share": 5}"#] {
            check(bad, canary, Err("invalid_json"));
        }
    }
}
