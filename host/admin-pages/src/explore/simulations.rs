//! `/admin/simulations`: what policies would have done with the recorded traffic. A simulation is a process of its own,
//! and one runs at a time.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use conductor_tools::simulate::{JobReport, SimulatedPolicy, SimulationJobs, SimulationOrder, StartJobError};
use observability::error_chain;
use policy_store::{ComponentOrigin, PolicyReport, VersionReport, VersionState};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::access::{AdminKey, Listener};
use crate::body::{BodyLimits, invalid, object};
use crate::control::Status;
use crate::refusal::{Refusal, only_get_or_delete, only_get_or_post};

const LIMITS: BodyLimits = BodyLimits::slow(16 << 10);
const EXAMPLE: &str = r#"{"policies": ["cache-aware", "round-robin"]}"#;
/// Policies of a simulation at most.
const POLICIES: usize = 4;
/// Speed-up factors.
const RATES: std::ops::RangeInclusive<f64> = 0.01..=1_000.0;

/// The pages.
#[derive(Debug, Clone)]
pub(crate) struct SimulationPages {
    pub(crate) key: AdminKey,
    pub(crate) status: Status,
    pub(crate) jobs: SimulationJobs,
    /// File of this program. `None` where another program embeds the router.
    pub(crate) program: Option<PathBuf>,
    /// One start at a time: it copies components.
    pub(crate) turn: Arc<Semaphore>,
}

impl SimulationPages {
    pub(crate) fn pages(self) -> Router {
        let list =
            |State(pages): State<Self>| async move { Json(json!({ "simulations": pages.jobs.list() })) };
        let start = |State(pages): State<Self>, request| async move { answer(pages.start(request).await) };
        let show = |State(pages): State<Self>, Path(id): Path<String>| async move { answer(pages.show(&id)) };
        let cancel = |State(pages): State<Self>, Path(id): Path<String>, headers: HeaderMap| async move {
            answer(pages.cancel(&id, &headers))
        };
        Router::new()
            .route(
                "/admin/simulations",
                get(list).post(start).fallback(only_get_or_post),
            )
            .route(
                "/admin/simulations/{id}",
                get(show).delete(cancel).fallback(only_get_or_delete),
            )
            .with_state(self)
    }

    fn show(&self, id: &str) -> Result<(StatusCode, JobReport), Refusal> {
        let found = self.jobs.get(id).ok_or_else(|| unknown(id))?;
        Ok((StatusCode::OK, found))
    }

    fn cancel(&self, id: &str, headers: &HeaderMap) -> Result<(StatusCode, JobReport), Refusal> {
        self.key.check(headers, Listener::Operators)?;
        let removed = self.jobs.remove(id).ok_or_else(|| unknown(id))?;
        Ok((StatusCode::OK, removed))
    }

    async fn start(&self, request: Request) -> Result<(StatusCode, JobReport), Refusal> {
        let (head, body) = request.into_parts();
        self.key.check(&head.headers, Listener::Operators)?;
        let body = object(&LIMITS.collect(body).await?, EXAMPLE)?;
        let order = self.order(&body).await?;
        let started = self.jobs.start(order).map_err(|error| {
            let (status, code) = match error {
                StartJobError::Running(_) => (StatusCode::CONFLICT, "simulation_running"),
                StartJobError::Thread(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            };
            Refusal::new(status, code, format!("failed to {}", error_chain(&error)))
        })?;
        Ok((StatusCode::ACCEPTED, started))
    }

    async fn order(&self, body: &Map<String, Value>) -> Result<SimulationOrder, Refusal> {
        let policies = self.status.policies();
        let unavailable =
            |message: &str| Refusal::new(StatusCode::CONFLICT, "simulation_unavailable", message);
        let program = self.program.clone();
        let program =
            program.ok_or_else(|| unavailable("the router is embedded in a program without simulations"))?;
        let log = policies.explore.as_ref().and_then(|explore| explore.log.clone());
        let log = log.filter(|log| log.is_file()).ok_or_else(|| {
            unavailable("there is no recorded traffic: set `file` and `prompt-blocks` of [record]")
        })?;
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let turn = turn.map_err(|_| Refusal::busy())?;
        let names: Vec<String> = names(body)?.into_iter().map(str::to_owned).collect();
        let (pool, rate) = (pool(body)?, rate(body)?);
        let simulated = move || {
            let simulated = simulated(&names, &policies.policies);
            drop(turn);
            simulated
        };
        let simulated = tokio::task::spawn_blocking(simulated).await;
        Ok(SimulationOrder {
            program,
            log,
            pool,
            rate,
            policies: simulated.map_err(|_| Refusal::busy())??,
        })
    }
}

fn answer(result: Result<(StatusCode, JobReport), Refusal>) -> Response<Body> {
    match result {
        Ok((status, report)) => (status, Json(report)).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

fn unknown(id: &str) -> Refusal {
    let id: String = id.chars().take(32).collect();
    let message = format!("there is no simulation `{id}`: the latest 8 are kept");
    Refusal::new(StatusCode::NOT_FOUND, "simulation_not_found", message)
}

fn pool(body: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    match body.get("pool") {
        None | Some(Value::Null) => Ok(None),
        // A flag of the command line begins with a dash, a name never does.
        Some(Value::String(name)) if !name.starts_with('-') => Ok(Some(name.clone())),
        Some(_) => Err(invalid("pool", "`pool` is no name of a pool")),
    }
}

fn rate(body: &Map<String, Value>) -> Result<f64, Refusal> {
    let rate = match body.get("rate") {
        None | Some(Value::Null) => Some(1.0),
        Some(rate) => rate.as_f64(),
    };
    let rate = rate.filter(|rate| RATES.contains(rate));
    rate.ok_or_else(|| {
        let (least, most) = (RATES.start(), RATES.end());
        invalid("rate", format!("`rate` is no number from {least} to {most}"))
    })
}

fn names(body: &Map<String, Value>) -> Result<Vec<&str>, Refusal> {
    let given = body.get("policies").and_then(Value::as_array);
    let names: Option<Vec<&str>> = given.and_then(|given| given.iter().map(Value::as_str).collect());
    let names = names.unwrap_or_default();
    let repeated = (1..names.len()).any(|at| names[..at].contains(&names[at]));
    if names.is_empty() || names.len() > POLICIES || repeated {
        let message = format!("`policies` is no list of 1 to {POLICIES} different names");
        return Err(invalid("policies", message));
    }
    Ok(names)
}

/// Returns the policies in the order of their names. Blocks: each component is written to a file of its own, since the
/// policy's file may have other bytes than the active version.
fn simulated(names: &[String], policies: &[PolicyReport]) -> Result<Vec<SimulatedPolicy>, Refusal> {
    let found: Vec<_> = names
        .iter()
        .map(|name| active(name, policies))
        .collect::<Result<_, _>>()?;
    for (at, (policy, version)) in found.iter().enumerate() {
        let is_same =
            |other: &VersionReport| (&other.sha256, &other.params) == (&version.sha256, &version.params);
        let same = found[..at].iter().find(|(_, other)| is_same(other));
        if let Some((same, _)) = same {
            // The report could not distinguish them.
            let message = format!(
                "`{}` and `{}` have the same component and parameters",
                same.name, policy.name
            );
            return Err(invalid("policies", message));
        }
    }
    found
        .into_iter()
        .map(|(policy, version)| argument(policy, version))
        .collect()
}

/// Returns a policy and its active version.
fn active<'p>(
    name: &str,
    policies: &'p [PolicyReport],
) -> Result<(&'p PolicyReport, &'p VersionReport), Refusal> {
    let Some(report) = policies.iter().find(|report| report.name == name) else {
        let message = format!("there is no policy `{name}`");
        return Err(Refusal::new(StatusCode::NOT_FOUND, "policy_not_found", message).of("policies"));
    };
    if report.pipeline.is_some() {
        let message = format!("`{name}` is a pipeline, and simulations take components");
        return Err(Refusal::new(StatusCode::CONFLICT, "is_pipeline", message).of("policies"));
    }
    let mut versions = report.versions.iter();
    let active = versions.find(|version| version.state == VersionState::Active);
    let active = active.ok_or_else(|| not_available(format!("no version of `{name}` is loaded")))?;
    Ok((report, active))
}

/// Returns the argument that stands for the active version of a policy.
fn argument(policy: &PolicyReport, version: &VersionReport) -> Result<SimulatedPolicy, Refusal> {
    let name = &policy.name;
    let origin = policy.active_origin().ok_or_else(|| {
        not_available(format!(
            "the file of `{name}` has other bytes than the active version, and these are not kept: set `policy-state` \
             before a rollback, or resume the policy"
        ))
    })?;
    let (component, folder) = match origin {
        ComponentOrigin::Builtin(builtin) => (builtin, None),
        ComponentOrigin::Bytes(bytes) => {
            let written = write_component(name, &bytes);
            let (path, folder) = written.map_err(|error| {
                not_available(format!(
                    "failed to write a copy of `{name}` for the simulation: {error}"
                ))
            })?;
            (path, Some(folder))
        }
    };
    let has_params = version
        .params
        .as_object()
        .is_some_and(|params| !params.is_empty());
    let argument = match has_params {
        true => format!("{component}={}", version.params),
        false => component,
    };
    Ok(SimulatedPolicy {
        name: name.clone(),
        argument,
        folder,
    })
}

/// Writes a component into a temporary folder, which only this user can read. Returns its path and the folder.
fn write_component(name: &str, bytes: &[u8]) -> io::Result<(String, TempDir)> {
    let folder = tempfile::Builder::new()
        .prefix("conductor-simulation-")
        .tempdir()?;
    let path = folder.path().join(format!("{name}.wasm"));
    fs::write(&path, bytes)?;
    Ok((path.display().to_string(), folder))
}

fn not_available(message: String) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, "policy_unavailable", message).of("policies")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(body: Value) -> Map<String, Value> {
        let Value::Object(body) = body else {
            panic!("an object")
        };
        body
    }

    #[test]
    fn bodies_are_read_within_their_bounds() {
        assert_eq!(
            names(&body(json!({ "policies": ["a", "b"] }))).unwrap(),
            ["a", "b"]
        );
        for policies in [
            json!([]),
            json!("a"),
            json!(["a", "a"]),
            json!([1]),
            json!(["a", "b", "c", "d", "e"]),
        ] {
            assert!(
                names(&body(json!({ "policies": policies }))).is_err(),
                "{policies}"
            );
        }
        assert_eq!(rate(&body(json!({}))).unwrap(), 1.0);
        assert_eq!(rate(&body(json!({ "rate": 2.5 }))).unwrap(), 2.5);
        for bad in [json!(0), json!(-1), json!("1"), json!(1e9)] {
            assert!(rate(&body(json!({ "rate": bad }))).is_err(), "{bad}");
        }
        assert_eq!(
            pool(&body(json!({ "pool": "chat" }))).unwrap().as_deref(),
            Some("chat")
        );
        assert!(pool(&body(json!({ "pool": "--html" }))).is_err());
    }

    #[test]
    fn a_component_is_copied_for_the_simulation_only() {
        let (path, folder) = write_component("mine", b"bytes").unwrap();
        assert!(path.ends_with("/mine.wasm"), "{path}");
        assert_eq!(fs::read(&path).unwrap(), b"bytes");
        drop(folder);
        assert!(!std::path::Path::new(&path).exists());
    }
}
