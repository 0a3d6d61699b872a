//! `GET /admin/index`: blocks by worker and tier, the most popular prefixes, and the reuse of prompt tokens by pool.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use kv_plane::IndexedWorker;
use proxy::PoolReport;
use serde_json::{Value, json};

use super::state::ExplorePages;
use crate::refusal::{Refusal, only_get};

pub(super) fn pages() -> Router<ExplorePages> {
    let show = |State(pages): State<ExplorePages>| async move { pages.show_index().await };
    Router::new().route("/admin/index", get(show).fallback(only_get))
}

impl ExplorePages {
    /// Returns the page. The survey of the index runs apart from the request threads.
    async fn show_index(self) -> Response<Body> {
        let page = tokio::task::spawn_blocking(move || self.index_page()).await;
        page.map_or_else(
            |_| Refusal::busy().into_response(),
            |page| Json(page).into_response(),
        )
    }

    fn index_page(&self) -> Value {
        let snapshot = self.cell.load();
        let fleet: Vec<_> = snapshot.report().iter().flat_map(indexed).collect();
        let mut page = json!(self.index.report(&fleet));
        let pools = snapshot.reuse().into_iter();
        let funnel: BTreeMap<Box<str>, Value> = pools
            .map(|pool| {
                let tokens = json!({
                    "prompt_tokens": pool.prompt_tokens,
                    "best_tokens": pool.best_tokens,
                    "matched_tokens": pool.matched_tokens,
                    "cached_tokens": pool.cached_tokens,
                });
                (pool.pool, tokens)
            })
            .collect();
        page["funnel"] = json!(funnel);
        page
    }
}

fn indexed(pool: &PoolReport) -> Vec<IndexedWorker> {
    let workers = pool.workers.iter();
    workers
        .map(|report| IndexedWorker {
            pool: pool.name.clone(),
            name: report.worker.spec().name.clone(),
            id: report.worker.id(),
        })
        .collect()
}
