//! `GET /admin/feeds`: the KV-event feeds of workers and stores, and the targets of discovery.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use kv_feed::{FeedStatus, KvFeeds, Rejected};
use kv_plane::{Discovery, StoreReport};
use proxy::SnapshotCell;
use serde_json::{Value, json};

use crate::refusal::only_get;

/// Sources of the page.
#[derive(Debug, Clone)]
pub(crate) struct FeedsPage {
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) feeds: Arc<KvFeeds>,
    pub(crate) discovery: Arc<Discovery>,
}

impl FeedsPage {
    pub(crate) fn pages(self) -> Router {
        let show = |State(page): State<Self>| async move { Json(page.show()) };
        Router::new()
            .route("/admin/feeds", get(show).fallback(only_get))
            .with_state(self)
    }

    fn show(&self) -> Value {
        let feeds: Vec<_> = self.feeds.status().into_iter().map(feed).collect();
        let generation = self.cell.load().generation().0;
        let targets = self.discovery.report();
        let stores: Vec<_> = self.discovery.stores().into_iter().map(store).collect();
        json!({
            "generation": generation, "feeds": feeds, "targets": &targets, "stores": stores,
            // Former name of `targets`, kept for one release.
            "asked": &targets,
        })
    }
}

fn feed(feed: FeedStatus) -> Value {
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
}

fn store(store: StoreReport) -> Value {
    let reason = store.reason();
    let feed = store.feed;
    json!({
        "store": &*feed.name, "endpoint": feed.endpoint, "state": feed.state.as_str(),
        "publishes": store.reported.map(|status| status.enabled), "last_seq": feed.last_seq,
        "batches": feed.batches, "stored": feed.stored, "removed": feed.removed,
        "resets": feed.resets, "rejected": by_reason(&feed.rejected),
        "rejected_messages": feed.rejected_messages, "refused": by_reason(&feed.refused),
        "silent_for_s": feed.silent_for.map(seconds), "lag_s": feed.lag.map(seconds),
        "reason": reason, "state_for_s": seconds(feed.reason.lasted),
        "next_try_s": feed.reason.next_try.map(seconds),
    })
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Returns events by the reason of their rejection, or connections by the reason of their end.
fn by_reason(rejected: &Rejected) -> BTreeMap<&'static str, u64> {
    rejected.by_reason().collect()
}
