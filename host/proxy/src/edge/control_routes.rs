//! Control endpoints: health, readiness, metrics and models.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, Response, StatusCode, Uri};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use hyper::body::Incoming;
use inference_api::{Reserved, find_model, reserved, select_models};

use crate::base::reply::{self, Refusal};
use crate::edge::openapi::{self, PageDoc};
use crate::edge::own_pages;
use crate::proxy::Proxy;
use crate::request::fleet_report::{Health, PoolReport, WorkerReport};

/// Reason of an unready router while memory is short.
const MEMORY_FULL: &str = "memory is short";
/// Maximum of workers of a pool that `/readyz` names.
const MOST_NAMED: usize = 32;

type SharedProxy = State<Arc<Proxy>>;

/// Builds `/health`, `/readyz` and `/metrics`, which clients and operators share.
pub fn status_pages(proxy: Arc<Proxy>) -> Router {
    Router::new()
        .route("/health", takes_get(get(health)))
        .route("/readyz", takes_get(get(readyz)))
        .route("/metrics", takes_get(get(metrics)))
        .with_state(proxy)
}

/// Builds the control routes, with additional `pages` of the composition root.
pub(crate) fn router(proxy: Arc<Proxy>, pages: Router) -> Router {
    let router = OWN_PAGES.iter().fold(Router::new(), |router, page| {
        router.route(page.doc.path, page.methods())
    });
    router.fallback(unknown_path).with_state(proxy).merge(pages)
}

/// Table row: a page that the router itself answers on the clients' listener.
struct OwnPage {
    doc: PageDoc,
    handlers: fn() -> MethodRouter<Arc<Proxy>>,
}

impl OwnPage {
    /// Returns the handlers by method. Any other method is refused.
    fn methods(&self) -> MethodRouter<Arc<Proxy>> {
        let allow = self.doc.allow;
        (self.handlers)().fallback(async move |uri: Uri| refuse(&wrong_method(uri.path(), allow)))
    }
}

/// Table of the router's own pages. Endpoints that workers serve are in [`inference_api::Endpoint`]'s table.
const OWN_PAGES: &[OwnPage] = &[
    OwnPage {
        doc: PageDoc {
            path: "/health",
            allow: "GET",
            summary: "Answers 200 while the process runs",
        },
        handlers: || get(health),
    },
    OwnPage {
        doc: PageDoc {
            path: "/ping",
            allow: "GET, POST",
            summary: "Answers 200 while the process runs",
        },
        handlers: || get(health).post(health),
    },
    OwnPage {
        doc: PageDoc {
            path: "/version",
            allow: "GET",
            summary: "The router's version",
        },
        handlers: || get(own_pages::version),
    },
    OwnPage {
        doc: PageDoc {
            path: "/load",
            allow: "GET",
            summary: "Requests that this router runs and queues",
        },
        handlers: || get(own_pages::load),
    },
    OwnPage {
        doc: PageDoc {
            path: "/openapi.json",
            allow: "GET",
            summary: "OpenAPI description of this API",
        },
        handlers: || get(describe),
    },
    OwnPage {
        doc: PageDoc {
            path: "/readyz",
            allow: "GET",
            summary: "Answers 200 while some worker is in service",
        },
        handlers: || get(clients_readyz),
    },
    OwnPage {
        doc: PageDoc {
            path: "/metrics",
            allow: "GET",
            summary: "Metrics in the text format of Prometheus, or in OpenMetrics if the client accepts it",
        },
        handlers: || get(clients_metrics),
    },
    OwnPage {
        doc: PageDoc {
            path: "/v1/models",
            allow: "GET",
            summary: "Lists the models of all workers",
        },
        handlers: || get(models),
    },
    OwnPage {
        doc: PageDoc {
            // Ids may contain slashes.
            path: "/v1/models/{*id}",
            allow: "GET",
            summary: "Describes one model",
        },
        handlers: || get(model),
    },
];

/// Returns the descriptions of the router's own pages.
pub(crate) fn own_docs() -> Vec<PageDoc> {
    OWN_PAGES.iter().map(|page| page.doc).collect()
}

/// Returns the OpenAPI description of the API.
async fn describe(State(proxy): SharedProxy) -> Response<Body> {
    let edge = proxy.snapshots.edge();
    own_pages::page(&openapi::document(&edge.forward, &own_docs()))
}

fn takes_get(methods: MethodRouter<Arc<Proxy>>) -> MethodRouter<Arc<Proxy>> {
    methods.fallback(only_get)
}

async fn health() -> StatusCode {
    StatusCode::OK
}

async fn readyz(State(proxy): SharedProxy) -> Response<Body> {
    readiness(&proxy, true)
}

/// Answers `/readyz` to clients. If the API requires keys, a client without a key gets no names of pools.
async fn clients_readyz(State(proxy): SharedProxy) -> Response<Body> {
    let names_pools = !proxy.snapshots.load().clients.are_known();
    readiness(&proxy, names_pools)
}

fn readiness(proxy: &Proxy, names_pools: bool) -> Response<Body> {
    let snapshot = proxy.snapshots.load();
    let pools = snapshot.report();
    let in_service = |pool: &PoolReport| {
        let workers = pool.workers.iter();
        workers.filter(|worker| worker.health.is_in_service()).count()
    };
    // A router without pools serves other functions.
    let unserved = (!snapshot.is_served()).then(|| none_in_service(&pools, names_pools));
    let is_full = proxy.snapshots.edge().memory.refuses();
    let objection = proxy.readiness.objection().or(is_full.then_some(MEMORY_FULL));
    let objection = objection.map(str::to_owned).or(unserved);
    let counts = pools.iter().map(|pool| {
        let mut counts = serde_json::json!({ "workers": pool.workers.len(), "in_service": in_service(pool) });
        let out = pool
            .workers
            .iter()
            .filter(|worker| !worker.health.is_in_service());
        let out: Vec<_> = out.take(MOST_NAMED).map(out_of_service).collect();
        if !out.is_empty() {
            counts["out_of_service"] = out.into();
        }
        (pool.name.to_string(), counts)
    });
    let mut page = serde_json::json!({ "ready": objection.is_none() });
    if let Some(reason) = &objection {
        page["reason"] = reason.as_str().into();
    }
    if names_pools {
        page["pools"] = serde_json::Value::Object(counts.collect());
    }
    let status = match objection {
        None => StatusCode::OK,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    reply::json(status, page.to_string()).map(Body::from)
}

/// Formats the reason of an unready router with its pending workers: by name if `names_workers`.
fn none_in_service(pools: &[PoolReport], names_workers: bool) -> String {
    let workers = || pools.iter().flat_map(|pool| &pool.workers);
    let pending = workers().filter(|worker| worker.health == Health::Pending);
    let names: Vec<&str> = pending.map(|worker| &*worker.worker.spec().name).collect();
    let reason = match workers().any(|worker| worker.health.is_in_service()) {
        false => "no worker of any pool is in service",
        true => "no pool has a worker in service that can answer: prefill and decode workers need each other",
    };
    if names.is_empty() {
        return reason.to_owned();
    }
    if !names_workers {
        return format!("{reason}; {} were never reached", names.len());
    }
    let named = names[..names.len().min(MOST_NAMED)].join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => format!("{reason}; pending: {named}"),
        more => format!("{reason}; pending: {named} and {more} more"),
    }
}

/// Describes a worker that is out of service, with the reason.
fn out_of_service(report: &WorkerReport) -> serde_json::Value {
    let reason = &report.reason;
    serde_json::json!({
        "worker": &*report.worker.spec().name,
        "health": report.health.as_str(),
        "reason": reason.text,
        "for_s": reason.lasted.map(|time| time.as_secs_f64()),
        "next_try_s": reason.next_try.map(|time| time.as_secs_f64()),
    })
}

async fn metrics(State(proxy): SharedProxy, headers: HeaderMap) -> Response<Body> {
    proxy.exposition.answer(&headers).await
}

/// Answers `/metrics` on the clients' listener if the configuration allows it.
async fn clients_metrics(proxy: SharedProxy, uri: Uri, headers: HeaderMap) -> Response<Body> {
    if proxy.snapshots.load().metrics_on_listen {
        return metrics(proxy, headers).await;
    }
    unknown_path(uri).await
}

async fn models(State(proxy): SharedProxy, headers: HeaderMap) -> Response<Body> {
    match list_models(&proxy, headers).await {
        Ok(list) => reply::json(StatusCode::OK, list).map(Body::from),
        Err(refusal) => refuse(&refusal),
    }
}

/// Lists the models that the client may use.
async fn list_models(proxy: &Proxy, mut headers: HeaderMap) -> Result<Bytes, Refusal> {
    let snapshot = proxy.snapshots.load();
    let client = snapshot.clients.identify(&mut headers)?;
    let list = proxy.models.get(&snapshot, &headers).await;
    let list = list.ok_or(Refusal::NoModels)?;
    let Some(client) = client else { return Ok(list) };
    let allowed = select_models(&list, |model| client.may_use(model));
    // A merged response is a list.
    allowed.map(Bytes::from).map_err(|_| Refusal::NoModels)
}

async fn model(
    State(proxy): SharedProxy,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let Ok(Path(id)) = id else {
        return unknown_path(uri).await;
    };
    let list = match list_models(&proxy, headers).await {
        Ok(list) => list,
        Err(refusal) => return refuse(&refusal),
    };
    match find_model(&list, &id) {
        Ok(Some(model)) => reply::json(StatusCode::OK, model.to_owned()).map(Body::from),
        // A merged response is a list.
        Ok(None) | Err(_) => refuse(&Refusal::not_served(&id)),
    }
}

async fn unknown_path(uri: Uri) -> Response<Body> {
    let path = reply::cut(uri.path());
    if reserved(uri.path()) == Some(Reserved::Administration) {
        return refuse(&Refusal::EngineAdministration { path });
    }
    refuse(&Refusal::UnknownPath { path })
}

async fn only_get(uri: Uri) -> Response<Body> {
    refuse(&wrong_method(uri.path(), "GET"))
}

/// Returns the refusal of a method that the path does not allow.
pub(crate) fn wrong_method(path: &str, allow: &'static str) -> Refusal {
    Refusal::WrongMethod {
        path: reply::cut(path),
        allow,
    }
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    reply::refuse(refusal).map(Body::from)
}

/// Converts a request for the control routes.
pub(crate) fn request(request: Request<Incoming>) -> Request<Body> {
    request.map(Body::new)
}
