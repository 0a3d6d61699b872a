//! Metrics of the stores that workers share.

use std::fmt::Error;
use std::sync::Arc;

use kv_feed::{FeedState, Rejected};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::discovery::{Discovery, StoreReport};
use observability::MetricPage;

/// Collector of the metrics of stores.
#[derive(Debug)]
pub(crate) struct StoreCollector {
    pub(crate) discovery: Arc<Discovery>,
}

type OfStore = fn(&StoreReport) -> Option<u64>;

const LEVELS: &[(&str, &str, OfStore)] = &[
    (
        "conductor_store_feed_live",
        "1 while the store's event feed is current",
        |store| Some(u64::from(store.feed.state == FeedState::Live)),
    ),
    (
        "conductor_store_publishes",
        "1 if the store's admin page reports that it publishes events, 0 if it reports that it does not",
        |store| Some(u64::from(store.reported?.enabled)),
    ),
];

const COUNTERS: &[(&str, &str, OfStore)] = &[
    (
        "conductor_store_feed_batches",
        "Event batches of the store applied to the index",
        |store| Some(store.feed.batches),
    ),
    (
        "conductor_store_feed_stored",
        "Objects that the store reported as stored",
        |store| Some(store.feed.stored),
    ),
    (
        "conductor_store_feed_removed",
        "Objects that the store reported as removed",
        |store| Some(store.feed.removed),
    ),
    (
        "conductor_store_feed_resets",
        "Invalidations of the store's blocks after lost events or a lost connection",
        |store| Some(store.feed.resets),
    ),
    (
        "conductor_store_feed_rejected_messages",
        "Messages of the store dropped whole",
        |store| Some(store.feed.rejected_messages),
    ),
    (
        "conductor_store_dropped_events",
        "Events that the store's own queue dropped, according to its admin page",
        |store| store.reported?.dropped_events,
    ),
];

impl Collector for StoreCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let stores = self.discovery.stores();
        if stores.is_empty() {
            return Ok(());
        }
        let mut page = MetricPage::new(encoder);
        let label = |store: &StoreReport| [("store", store.feed.name.to_string())];
        let each = |value: OfStore| {
            let known = stores
                .iter()
                .filter_map(move |store| Some((store, value(store)?)));
            known.map(move |(store, value)| (label(store), value))
        };
        for (name, help, level) in LEVELS {
            page.gauges(name, help, each(*level))?;
        }
        for (name, help, count) in COUNTERS {
            page.counters(name, help, each(*count))?;
        }
        let by_reason = |of: fn(&StoreReport) -> &Rejected| {
            stores.iter().flat_map(move |store| {
                let with = |reason: &str| {
                    let [name] = label(store);
                    [name, ("reason", reason.to_owned())]
                };
                let met = of(store).by_reason();
                met.map(move |(reason, times)| (with(reason), times))
                    .collect::<Vec<_>>()
            })
        };
        let help = "Undecodable or unknown events of the store skipped, by reason; a reason that never occurred has no series";
        page.counters(
            "conductor_store_feed_rejected",
            help,
            by_reason(|store| &store.feed.rejected),
        )?;
        let help = "Connections to the store closed because of a violation, by reason; a reason that never occurred has no series";
        page.counters(
            "conductor_store_feed_refused",
            help,
            by_reason(|store| &store.feed.refused),
        )?;
        let ages = stores
            .iter()
            .filter_map(|store| Some((label(store), store.feed.silent_for?)));
        let help = "Time since the store's last batch";
        page.seconds("conductor_store_feed_last_event_age_seconds", help, ages)?;
        let lags = stores
            .iter()
            .filter_map(|store| Some((label(store), store.feed.lag?)));
        let help = "From the creation of the last batch (store's clock) to its application (router's clock)";
        page.seconds("conductor_store_feed_lag_seconds", help, lags)
    }
}
