//! `GET /status`: the fleet as it is now. It holds no secret, and changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use proxy::{BudgetReport, LiveFeeds, MemoryReport, ModelsReport, PoolReport, SnapshotCell, WorkerReport};
use routing::Role;
use serde_json::{Value, json};

use crate::access::{AdminKey, Listener};
use crate::control::{RouteReport, Status};
use crate::knowledge::{KnowledgeSources, Warning};
use crate::refusal::{Refusal, only_get};
use policy_store::PolicyReport;
use runtime_overrides::OverlayKind;

/// Sources of the page.
#[derive(Debug, Clone)]
pub(crate) struct StatusPage {
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) live: Arc<LiveFeeds>,
    pub(crate) status: Status,
    pub(crate) knowledge: KnowledgeSources,
}

impl StatusPage {
    /// Returns the page. If clients have keys, the page needs the admin key on their listener.
    pub(crate) fn pages(self, key: AdminKey, listener: Listener) -> Router {
        let show = move |State(page): State<Self>, headers: HeaderMap| async move {
            if listener == Listener::Clients && page.cell.load().needs_keys() {
                key.check(&headers, listener).map_err(Refusal::into_response)?;
            }
            Ok::<_, Response<Body>>(page.show())
        };
        Router::new()
            .route("/status", get(show).fallback(only_get))
            .with_state(self)
    }

    fn show(&self) -> Response<Body> {
        let config = self.status.config();
        let policies = self.status.policies().policies;
        let policies: HashMap<&str, &PolicyReport> = policies
            .iter()
            .map(|policy| (policy.name.as_str(), policy))
            .collect();
        let snapshot = self.cell.load();
        let pools = snapshot.report();
        let overlays = config.overlays.iter();
        let overlays: HashMap<&str, OverlayKind> = overlays
            .map(|overlay| (overlay.url.as_str(), overlay.kind))
            .collect();
        let origins = WorkerOrigins {
            overlays,
            discovered: &config.origins,
        };
        let warnings = self.knowledge.warnings(&pools);
        let pool = |(pool, warnings): (&PoolReport, &Vec<Warning>)| self.pool(pool, warnings, &origins);
        Json(json!({
            "generation": snapshot.generation().0,
            "config": { "source": config.source, "valid": config.problems.is_empty() },
            "routes": config.routes.iter().map(|of| route(of, &policies)).collect::<Vec<_>>(),
            "pools": pools.iter().zip(&warnings).map(pool).collect::<Vec<_>>(),
            "overlays": config.overlays,
            "memory": memory(&snapshot.memory()),
        }))
        .into_response()
    }

    fn pool(&self, pool: &PoolReport, warnings: &[Warning], origins: &WorkerOrigins<'_>) -> Value {
        let worker = |worker: &WorkerReport| self.worker(worker, origins);
        json!({
            "name": &*pool.name,
            "dialect": pool.dialect.map(|dialect| dialect.as_str()),
            "dialect_detection": pool.dialect_report.as_ref().map(|report| json!({
                "state": report.state, "reason": report.reason,
            })),
            "queued": pool.queued,
            "budget": pool.budget.as_ref().map(budget),
            "roles": roles(&pool.workers),
            "warnings": warnings,
            "workers": pool.workers.iter().map(worker).collect::<Vec<_>>(),
        })
    }

    fn worker(&self, report: &WorkerReport, origins: &WorkerOrigins<'_>) -> Value {
        let (worker, spec) = (&report.worker, report.worker.spec());
        let load = worker.load().read();
        json!({
            "name": &*spec.name,
            "url": &*spec.url,
            "rank": spec.rank.map(|rank| rank.0),
            "role": spec.role.as_str(),
            "source": origins.source(&spec.url),
            "discovered_by": origins.discovered.get(&*spec.url),
            "health": report.health.as_str(),
            "checked": report.reason.is_checked,
            "health_reason": report.reason.text,
            "health_for_s": report.reason.lasted.map(|time| time.as_secs_f64()),
            "next_try_s": report.reason.next_try.map(|time| time.as_secs_f64()),
            "load": {
                "requests": load.requests, "decoding": load.decoding, "prefill_tokens": load.prefill_tokens,
            },
            "engine": report.engine.map(|(report, age_ms)| json!({
                "running": report.running, "waiting": report.waiting, "kv_usage": report.kv_usage,
                "kv_tokens": report.kv_tokens, "age_ms": age_ms,
            })),
            "models": models(&spec.models, &report.models),
            "feed_live": self.live.is_live(worker.id()),
        })
    }
}

/// Origins of the workers that differ from the file, by URL.
struct WorkerOrigins<'a> {
    overlays: HashMap<&'a str, OverlayKind>,
    discovered: &'a BTreeMap<String, String>,
}

impl WorkerOrigins<'_> {
    fn source(&self, url: &str) -> &'static str {
        match self.overlays.get(url) {
            Some(overlay) => overlay.source(),
            None if self.discovered.contains_key(url) => "discovery",
            None => "file",
        }
    }
}

/// Returns the models of a worker: as the configuration names them (null: all that it lists), and as it listed them
/// last, adapters by name with their base model.
fn models(configured: &[Box<str>], report: &ModelsReport) -> Value {
    let listed = report.names.as_ref().map(|names| {
        let of_base = |is_base: bool| {
            let names = names.iter();
            names.filter(move |(_, parent)| parent.is_none() == is_base)
        };
        let base: Vec<&str> = of_base(true).map(|(name, _)| &**name).collect();
        let adapters: BTreeMap<&str, Option<&str>> = of_base(false)
            .map(|(name, parent)| (&**name, parent.as_deref()))
            .collect();
        json!({ "models": base, "adapters": adapters, "age_ms": report.age_ms })
    });
    json!({
        "configured": (!configured.is_empty()).then_some(configured),
        "listed": listed,
        "error": report.failure.as_deref(),
    })
}

/// Returns the requests of a pool with their limits (null: no limit), and the queue.
fn budget(budget: &BudgetReport) -> Value {
    let waiting = budget.waiting.iter().copied();
    json!({
        "requests": { "used": budget.used.requests, "limit": budget.limits.requests },
        "tokens": { "used": budget.used.tokens, "limit": budget.limits.tokens },
        "waiting": waiting.collect::<BTreeMap<_, _>>(),
    })
}

/// Returns the memory of the process and its limit in bytes (null: unknown, or no limit).
fn memory(report: &MemoryReport) -> Value {
    json!({
        "stage": report.stage.as_str(),
        "resident_bytes": report.resident,
        "limit_bytes": report.limit,
    })
}

/// Returns the number of workers by state.
fn roles(workers: &[WorkerReport]) -> BTreeMap<&'static str, usize> {
    let roles = [Role::Mixed, Role::Prefill, Role::Decode];
    let count = |role| {
        let of_role = workers.iter().filter(|report| report.worker.spec().role == role);
        of_role.count()
    };
    roles
        .into_iter()
        .map(|role| (role.as_str(), count(role)))
        .collect()
}

/// Returns a route, and the versions of the policies that decide for it.
fn route(route: &RouteReport, policies: &HashMap<&str, &PolicyReport>) -> Value {
    let policy = |name: &String| {
        let version = policies.get(name.as_str());
        json!({
            "name": name,
            "version": version.and_then(|version| version.manifest.as_deref()),
            "sha256": version.and_then(|version| version.sha256.as_deref()),
            "generation": version.map(|version| version.swaps),
        })
    };
    let canary = |(name, share): &(String, f64)| json!({ "policy": policy(name), "share": share });
    json!({
        "pool": route.pool,
        "policy": policy(&route.policy),
        "prefill_policy": route.prefill_policy.as_ref().map(policy),
        "decode_policy": route.decode_policy.as_ref().map(policy),
        "canaries": route.canaries.iter().map(canary).collect::<Vec<_>>(),
        "shadows": route.shadows,
        "match": {
            "models": route.models, "path": route.path, "headers": route.headers,
        },
    })
}
