//! The admin pages, on a listener of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kv_feed::KvFeeds;
use proxy::{Door, PagesListener, PagesSpec, Proxy, SnapshotCell};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::admin_access::AdminKey;
use crate::admin_index;
use crate::refusal::{Refusal, only_get, only_post};
use crate::reload::{ReloadAnswer, ReloadCommand, ReloadOutcome};
use crate::status::Status;
use kv_plane::{Discovery, StoreReport};

/// Connections of operators at a time.
const CONNECTIONS: usize = 256;

/// Sources of the pages.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) status: Status,
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) key: AdminKey,
}

impl Admin {
    /// Serves these pages and `own` until `stop` is cancelled.
    pub(crate) async fn serve(
        self,
        door: Door,
        own: axum::Router,
        commands: SyncSender<ReloadCommand>,
        stop: CancellationToken,
    ) {
        let proxy = Arc::clone(&self.proxy);
        let status = proxy::status_pages(Arc::clone(&proxy));
        let guard = middleware::from_fn_with_state(self.key.clone(), AdminKey::guard);
        let pages = axum::Router::new()
            .route(
                "/admin/config",
                get(|State(admin): State<Self>| async move { Json(admin.status.config()) })
                    .fallback(only_get),
            )
            .route(
                "/admin/policies",
                get(|State(admin): State<Self>| async move {
                    Json(admin.status.policies().told(admin.cell.load().listeners()))
                })
                .fallback(only_get),
            )
            .route(
                "/admin/feeds",
                get(|State(admin): State<Self>| async move { admin.feeds_page() }).fallback(only_get),
            )
            .route(
                "/admin/reload",
                post(move |State(admin): State<Self>, headers| reload(admin.key, headers, commands))
                    .fallback(only_post),
            )
            .with_state(self)
            .merge(status)
            .merge(own)
            .merge(admin_index::pages())
            .merge(dashboard::pages())
            .fallback(admin_index::unknown)
            .layer(guard)
            .layer(middleware::map_response(no_store));
        let spec = PagesSpec {
            listener: PagesListener::Admin,
            key: "server.admin-listen",
            connections: CONNECTIONS,
        };
        proxy::serve_pages(door, pages, spec, &proxy, stop).await;
    }

    fn feeds_page(&self) -> Response {
        let seconds = |time: Duration| time.as_secs_f64();
        let feed = |feed: kv_feed::FeedStatus| {
            json!({
                "worker": &*feed.name, "rank": feed.rank.0, "endpoint": feed.endpoint, "state": feed.state.as_str(),
                "complete": feed.complete, "last_seq": feed.last_seq, "batches": feed.batches,
                "events": feed.events, "gaps": feed.gaps, "replays": feed.replays,
                "restarts": feed.restarts, "resets": feed.resets, "rejected": by_reason(&feed.rejected),
                "rejected_messages": feed.rejected_messages, "refused": by_reason(&feed.refused), "silences": feed.silences,
                "silent": feed.silent, "answers": feed.answers,
                "silent_for_s": feed.silent_for.map(seconds), "lag_s": feed.lag.map(seconds),
                "reason": feed.reason.text(), "state_for_s": seconds(feed.reason.lasted),
                "next_try_s": feed.reason.next_try.map(seconds), "replay_unanswered": feed.reason.is_unanswered,
            })
        };
        let feeds: Vec<_> = self.feeds.status().into_iter().map(feed).collect();
        let store = |store: StoreReport| {
            let feed = store.feed;
            json!({
                "store": &*feed.name, "endpoint": feed.endpoint, "state": feed.state.as_str(),
                "publishes": store.reported.map(|status| status.enabled), "last_seq": feed.last_seq,
                "batches": feed.batches, "stored": feed.stored, "removed": feed.removed,
                "resets": feed.resets, "rejected": by_reason(&feed.rejected),
                "rejected_messages": feed.rejected_messages, "refused": by_reason(&feed.refused),
                "silent_for_s": feed.silent_for.map(seconds), "lag_s": feed.lag.map(seconds),
                "reason": feed.reason.text(), "state_for_s": seconds(feed.reason.lasted),
                "next_try_s": feed.reason.next_try.map(seconds),
            })
        };
        let generation = self.cell.load().generation().0;
        let targets = self.discovery.report();
        let stores: Vec<_> = self.discovery.stores().into_iter().map(store).collect();
        Json(json!({
            "generation": generation, "feeds": feeds, "targets": &targets, "stores": stores,
            // Former name of `targets`, kept for one release.
            "asked": &targets,
        }))
        .into_response()
    }
}

/// Keeps a response out of caches, unless it has rules of its own, and from being read as another type than its own.
async fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let caching = headers.entry(CACHE_CONTROL);
    caching.or_insert(HeaderValue::from_static("no-store"));
    let sniffing = headers.entry(X_CONTENT_TYPE_OPTIONS);
    sniffing.or_insert(HeaderValue::from_static("nosniff"));
    response
}

/// Returns events by the reason of their rejection, or connections by the reason of their end.
fn by_reason(rejected: &kv_feed::Rejected) -> BTreeMap<&'static str, u64> {
    rejected.by_reason().collect()
}

async fn reload(key: AdminKey, headers: HeaderMap, commands: SyncSender<ReloadCommand>) -> Response {
    if let Err(refusal) = key.check_reload(&headers) {
        return refusal.into_response();
    }
    let (asked, answer) = oneshot::channel();
    if commands.try_send(ReloadCommand::Asked(asked)).is_err() {
        return Refusal::busy().into_response();
    }
    match answer.await {
        Ok(answer) => reload_page(&answer),
        Err(_) => Refusal::busy().into_response(),
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
            let message = format!(
                "the configuration is refused while {step}, with {errors} errors: see `problems`; the old one stays"
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
