//! The index of the admin listener: `/admin` links to every page, and a path without a page answers with the list of
//! them. `/` is the dashboard for browsers, and the index for everything else.

use axum::Router;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use axum::routing::get;
use serde_json::{Value, json};

use crate::refusal::{Refusal, only_get};

/// A page of the admin listener.
struct AdminPage {
    method: &'static str,
    path: &'static str,
    about: &'static str,
}

const fn page(method: &'static str, path: &'static str, about: &'static str) -> AdminPage {
    AdminPage { method, path, about }
}

/// Every page of the admin listener but this index. A test compares it with the routes.
const PAGES: &[AdminPage] = &[
    page("GET", "/ui/", "the dashboard, a web page over these pages"),
    page(
        "GET",
        "/status",
        "the fleet: pools, workers, health, loads, active policies",
    ),
    page("GET", "/health", "whether the process lives"),
    page("GET", "/readyz", "whether the router can serve, by pool"),
    page(
        "GET",
        "/metrics",
        "metrics in the text format of Prometheus, or in OpenMetrics if the client accepts it",
    ),
    page(
        "GET",
        "/admin/config",
        "the active configuration, and the problems of the newest file",
    ),
    page(
        "GET",
        "/admin/config/history",
        "the latest configuration texts: time, cause, result, problems",
    ),
    page(
        "GET",
        "/admin/config/history/{id}/diff",
        "the difference of a text from the one before, without secrets",
    ),
    page(
        "GET",
        "/admin/config/file",
        "the configuration file, with the admin key",
    ),
    page(
        "PUT",
        "/admin/config/file",
        "writes and applies an edited configuration file, or answers with 422 and changes nothing",
    ),
    page(
        "POST",
        "/admin/config/check",
        "the problems and changes of an edited configuration, which is not applied",
    ),
    page(
        "POST",
        "/admin/reload",
        "reads the configuration and the policies again, and answers with what changed, or 422 with the problems",
    ),
    page(
        "GET",
        "/admin/discovery",
        "the sources of workers with their states, and the workers that are left out",
    ),
    page("GET", "/admin/feeds", "the KV-event feeds of workers and stores"),
    page(
        "GET",
        "/admin/policies",
        "policies with their versions and circuits",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/rollback",
        "activates the version before",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/resume",
        "activates the newest version again",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/shadow",
        "runs a policy as a shadow of a route",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/canary",
        "gives a policy a share of a route's sessions",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/promote",
        "makes a shadow or canary the route's policy",
    ),
    page(
        "POST",
        "/admin/policies/{policy}/retract",
        "gives a route what the file says of the policy",
    ),
    page(
        "GET",
        "/admin/replicas",
        "the routers of the fleet: state, delay, configuration",
    ),
    page("GET", "/admin/trials", "what canaries and shadows do"),
    page(
        "POST",
        "/admin/canaries/{policy}/resume",
        "resumes a canary that was stopped",
    ),
    page(
        "GET",
        "/admin/me",
        "what the sender of the request may do, and what is off",
    ),
    page(
        "GET",
        "/admin/stream",
        "the fleet, the requests and the changes as they happen, as an event stream",
    ),
    page(
        "GET",
        "/admin/history",
        "rates of pools and loads of workers in the last ten minutes",
    ),
    page(
        "GET",
        "/admin/changes",
        "the latest changes of configuration, policies and fleet",
    ),
    page(
        "GET",
        "/admin/requests",
        "the recorded requests, by pool, worker, policy, outcome, model, id and duration",
    ),
    page(
        "GET",
        "/admin/explain/{*id}",
        "why a request went where it went, by its x-request-id",
    ),
    page(
        "GET",
        "/admin/index",
        "the prefix index: blocks by worker, popular prefixes, reuse of tokens",
    ),
    page(
        "POST",
        "/admin/index/lookup",
        "how much of a prompt each worker holds",
    ),
    page("POST", "/admin/workers/drain", "gives a worker no new requests"),
    page(
        "POST",
        "/admin/workers/resume",
        "gives a drained worker requests again",
    ),
    page(
        "PUT",
        "/admin/policies/{policy}",
        "checks a component, and replaces the policy's file by it",
    ),
    page(
        "POST",
        "/admin/explain/{id}/replay",
        "lets another policy decide a recorded call again",
    ),
    page("GET", "/admin/simulations", "the latest simulations"),
    page(
        "POST",
        "/admin/simulations",
        "simulates policies on the recorded traffic",
    ),
    page("GET", "/admin/simulations/{id}", "a simulation with its result"),
    page(
        "DELETE",
        "/admin/simulations/{id}",
        "cancels a simulation, or forgets its result",
    ),
    page("POST", "/instances/add", "adds a worker, or changes its role"),
    page("POST", "/instances/remove", "removes a worker"),
];

/// Serves `/` and `/admin`.
pub(crate) fn pages() -> Router {
    Router::new()
        .route("/", get(root).fallback(only_get))
        .route("/admin", get(index).fallback(only_get))
        .route("/admin/", get(index).fallback(only_get))
}

/// Returns the dashboard for browsers, the index as JSON for everything else.
async fn root(headers: HeaderMap) -> Response<Body> {
    if accepts_html(&headers) {
        dashboard::page()
    } else {
        index(headers).await
    }
}

/// Returns HTML for browsers, JSON for everything else.
async fn index(headers: HeaderMap) -> Response<Body> {
    let (kind, body) = if accepts_html(&headers) {
        ("text/html; charset=utf-8", html())
    } else {
        ("application/json", json!({ "pages": list() }).to_string())
    };
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Answers a path without a page.
pub(crate) async fn unknown(uri: Uri) -> Response<Body> {
    let path: String = uri.path().chars().take(256).collect();
    let pages: Vec<String> = PAGES
        .iter()
        .map(|page| format!("{} {}", page.method, page.path))
        .collect();
    let message = format!("there is nothing at `{path}`; the pages are {}", pages.join(", "));
    Refusal::new(StatusCode::NOT_FOUND, "unknown_path", message).into_response()
}

fn list() -> Vec<Value> {
    let pages = PAGES.iter();
    pages
        .map(|page| json!({ "method": page.method, "path": page.path, "about": page.about }))
        .collect()
}

/// Returns the index as HTML. The texts are this file's own, without anything to escape.
fn html() -> String {
    let rows: String = PAGES.iter().map(row).collect();
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Conductor</title><h1>Conductor {}</h1><table>{rows}</table>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the row of a page. Only readable pages are links.
fn row(page: &AdminPage) -> String {
    let AdminPage { method, path, about } = page;
    let name = if *method == "GET" && !path.contains('{') {
        format!("<a href=\"{path}\">{path}</a>")
    } else {
        format!("{method} {path}")
    };
    format!("<tr><td>{name}<td>{about}")
}
