//! Sketch of a worker that no configuration has yet: its properties as far as it reveals them.

use std::sync::Arc;
use std::time::Duration;

use conductor_config::{KvEvents, ModelListConfig, Tokenize};
use futures_util::{StreamExt, stream};
use observability::error_chain;
use routing::Role;
use serde::Deserialize;
use worker_client::tls::{TlsError, WorkerTls};
use worker_client::{Authorization, ConnectionsSpec, WorkerClient};

use crate::observed::{EndpointProbe, EventEndpoint, Events, Observed, Page};
use crate::probe;
use crate::target::{EventsTarget, PoolDialect, ProbeAccess, ServedModels, Tokenizing, WorkerTarget};

/// Workers that are queried at the same time.
const CONCURRENT_WORKERS: usize = 16;
/// Timeout of one HTTP query.
const PATIENCE: Duration = Duration::from_secs(5);

/// Properties of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSketch {
    /// URL.
    pub url: String,
    /// Role that the engine reports. vLLM reports none.
    pub role: Option<Role>,
    /// Engine with its version.
    pub engine: Option<String>,
    /// Models without a parent.
    pub models: Vec<String>,
    /// LoRA adapters.
    pub adapters: Vec<String>,
    /// Sentence on its KV events.
    pub events: String,
    /// Reason why the worker or its list of models could not be read.
    pub problem: Option<String>,
}

/// Queries every worker, and returns the sketches in the same order.
pub async fn sketch_all(urls: &[String]) -> Vec<WorkerSketch> {
    let queries = urls.iter().map(|url| sketch(url));
    stream::iter(queries).buffered(CONCURRENT_WORKERS).collect().await
}

async fn sketch(url: &str) -> WorkerSketch {
    let target = match bare_target(url) {
        Ok(target) => target,
        Err(error) => return unreached(url, &error),
    };
    let observed = Box::pin(probe::observe(&target)).await;
    let (engine, role) = match &observed.reached {
        Some(Ok(_)) => engine(url, version(&observed)).await,
        _ => (None, None),
    };
    let listed = match &observed.models {
        Some(Page::Read(listed)) => &listed[..],
        _ => &[],
    };
    let of_kind = |is_adapter: bool| {
        let listed = listed.iter();
        let of_kind = listed.filter(move |model| model.parent.is_some() == is_adapter);
        of_kind.map(|model| model.id.clone()).collect()
    };
    WorkerSketch {
        url: url.to_owned(),
        role,
        engine,
        models: of_kind(false),
        adapters: of_kind(true),
        events: events(observed.events.as_ref()),
        problem: problem(&observed),
    }
}

/// Returns the sketch of a worker that cannot be queried.
fn unreached(url: &str, error: &TlsError) -> WorkerSketch {
    WorkerSketch {
        url: url.to_owned(),
        role: None,
        engine: None,
        models: Vec::new(),
        adapters: Vec::new(),
        events: events(None),
        problem: Some(format!("not reached: {}", error_chain(error))),
    }
}

/// Returns a worker with nothing but its URL. The system's authorities are trusted behind https, as in a pool without
/// a table `tls`.
fn bare_target(url: &str) -> Result<WorkerTarget, TlsError> {
    let is_secure = url.starts_with("https://");
    let tls = is_secure.then(WorkerTls::of_system).transpose()?;
    Ok(WorkerTarget {
        name: url.to_owned(),
        url: url.to_owned(),
        role: Role::Mixed,
        dialect: PoolDialect::Absent,
        bootstrap: None,
        health_path: "/health".to_owned(),
        served: ServedModels {
            models: Vec::new(),
            adapters: Vec::new(),
            list_path: Some(ModelListConfig::default().path),
        },
        events: EventsTarget {
            events: KvEvents::Auto,
            curve: None,
            discovery: None,
        },
        tokenizing: Tokenizing {
            of_pool: Tokenize::Off,
            of_models: Arc::default(),
        },
        access: ProbeAccess {
            connections: ConnectionsSpec {
                tls,
                ..ConnectionsSpec::default()
            },
            authorization: Authorization::Pass,
        },
    })
}

fn version(observed: &Observed) -> Option<&str> {
    match &observed.version {
        Some(Page::Read(version)) => Some(version),
        _ => None,
    }
}

/// Returns the engine with its version, and the role that SGLang reports.
async fn engine(url: &str, version: Option<&str>) -> (Option<String>, Option<Role>) {
    #[derive(Deserialize)]
    struct ServerInfo {
        disaggregation_mode: Option<String>,
    }
    let Ok(client) = WorkerClient::of_server(url, PATIENCE) else {
        return (None, None);
    };
    let reply = client.get("/server_info").await;
    let reply = reply.ok().filter(|reply| reply.status.is_success());
    let info = reply.and_then(|reply| serde_json::from_slice::<ServerInfo>(&reply.body).ok());
    let name = |kind: &str| version.map(|version| format!("{kind} {version}"));
    match info.and_then(|info| info.disaggregation_mode) {
        Some(mode) => {
            let role = match &*mode {
                "prefill" => Some(Role::Prefill),
                "decode" => Some(Role::Decode),
                _ => None,
            };
            (name("SGLang"), role)
        }
        None => (name("version"), None),
    }
}

fn events(events: Option<&Events>) -> String {
    match events {
        Some(Events::Endpoints(endpoints)) => {
            let endpoint = |at: &EventEndpoint| match &at.probe {
                EndpointProbe::Failed(error) => format!("{} ({error})", at.endpoint),
                _ => at.endpoint.clone(),
            };
            let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
            format!("KV events at {}", endpoints.join(", "))
        }
        Some(Events::Failed(error)) => format!("KV events unknown: {error}"),
        Some(Events::None) => "no KV events: policies see no cached prefixes there".to_owned(),
        Some(Events::Off) | None => "KV events unknown".to_owned(),
    }
}

fn problem(observed: &Observed) -> Option<String> {
    match (&observed.reached, &observed.models) {
        (Some(Err(error)), _) => Some(format!("not reached: {}", error.why)),
        (_, Some(Page::Unauthorized(status))) => Some(format!(
            "its models are behind a key ({status}): set `authorization` of the pool"
        )),
        (_, Some(Page::Failed(error))) => Some(format!("its models cannot be read: {error}")),
        (_, Some(Page::Absent)) => Some("it has no /v1/models: set `models`".to_owned()),
        _ => None,
    }
}
