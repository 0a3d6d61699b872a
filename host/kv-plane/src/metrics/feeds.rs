//! Metrics of the event feeds.

use std::fmt::Error;
use std::time::Duration;

use kv_feed::{FeedState, FeedStatus, Rejected};

use observability::MetricPage;

type OfFeed = fn(&FeedStatus) -> u64;

const FEED_COUNTERS: &[(&str, &str, OfFeed)] = &[
    (
        "conductor_kv_feed_batches",
        "Event batches applied to the index",
        |feed| feed.batches,
    ),
    (
        "conductor_kv_feed_rejected_messages",
        "Messages dropped whole: wrong frames, or a payload that is not a batch",
        |feed| feed.rejected_messages,
    ),
    (
        "conductor_kv_feed_gaps",
        "Gaps in the sequence of batches",
        |feed| feed.gaps,
    ),
    ("conductor_kv_feed_replays", "Requested replays", |feed| {
        feed.replays
    }),
    (
        "conductor_kv_feed_restarts",
        "Detected restarts of the publisher",
        |feed| feed.restarts,
    ),
    (
        "conductor_kv_feed_resets",
        "Invalidations of a cache of the worker",
        |feed| feed.resets,
    ),
    (
        "conductor_kv_feed_resubscribes",
        "Resubscriptions after a silence of a working engine",
        |feed| feed.silences,
    ),
    (
        "conductor_kv_feed_silences",
        "Deprecated: use conductor_kv_feed_resubscribes_total",
        |feed| feed.silences,
    ),
];

/// Time of a feed; `None` before its first batch.
type TimeOfFeed = fn(&FeedStatus) -> Option<Duration>;

const FEED_TIMES: &[(&str, &str, TimeOfFeed)] = &[
    (
        "conductor_kv_feed_last_event_age_seconds",
        "Time since the last live batch",
        |feed| feed.silent_for,
    ),
    (
        "conductor_kv_feed_lag_seconds",
        "From the creation of the last live batch (engine's clock) to its application (router's clock)",
        |feed| feed.lag,
    ),
];

const FEED_LEVELS: &[(&str, &str, OfFeed)] = &[
    (
        "conductor_kv_feed_live",
        "1 while the worker's event feed is current",
        |feed| u64::from(feed.state == FeedState::Live),
    ),
    (
        "conductor_kv_feed_complete",
        "1 if everything since the publisher's start was received; otherwise the index may lack blocks",
        |feed| u64::from(feed.complete),
    ),
    (
        "conductor_kv_feed_silent",
        "1 while the feed is connected without events, and its engine works or does not answer",
        |feed| u64::from(feed.silent),
    ),
];

/// Writes the metrics of the feeds.
pub(crate) fn encode(feeds: &[FeedStatus], page: &mut MetricPage<'_>) -> Result<(), Error> {
    for (name, help, count) in FEED_COUNTERS {
        page.counters(name, help, each(feeds, count))?;
    }
    let kinds = feeds.iter().flat_map(|feed| {
        let [worker, rank] = labels(feed);
        let kinds = [
            ("stored", feed.stored),
            ("removed", feed.removed),
            ("cleared", feed.cleared),
        ];
        kinds.map(|(kind, events)| ([worker.clone(), rank.clone(), ("kind", kind.to_owned())], events))
    });
    let help = "Events applied to the index, by kind";
    page.counters("conductor_kv_feed_events", help, kinds)?;
    let help = "Undecodable or unknown events skipped, by reason; a reason that never occurred has no series";
    let reasons = by_reason(feeds, |feed| &feed.rejected);
    page.counters("conductor_kv_feed_rejected", help, reasons)?;
    let help =
        "Connections closed because of a violation, by reason; a reason that never occurred has no series";
    let reasons = by_reason(feeds, |feed| &feed.refused);
    page.counters("conductor_kv_feed_refused", help, reasons)?;
    for (name, help, level) in FEED_LEVELS {
        page.gauges(name, help, each(feeds, level))?;
    }
    for (name, help, time) in FEED_TIMES {
        let known = feeds.iter().filter_map(|feed| Some((labels(feed), time(feed)?)));
        page.seconds(name, help, known)?;
    }
    Ok(())
}

type Label = (&'static str, String);

fn by_reason(
    feeds: &[FeedStatus],
    of: impl Fn(&FeedStatus) -> &Rejected,
) -> impl Iterator<Item = ([Label; 3], u64)> {
    feeds.iter().flat_map(move |feed| {
        let with = |reason: &str| {
            let [worker, rank] = labels(feed);
            [worker, rank, ("reason", reason.to_owned())]
        };
        of(feed)
            .by_reason()
            .map(move |(reason, times)| (with(reason), times))
    })
}

fn labels(feed: &FeedStatus) -> [Label; 2] {
    [
        ("worker", feed.name.to_string()),
        ("rank", feed.rank.0.to_string()),
    ]
}

fn each(feeds: &[FeedStatus], value: impl Fn(&FeedStatus) -> u64) -> impl Iterator<Item = ([Label; 2], u64)> {
    feeds.iter().map(move |feed| (labels(feed), value(feed)))
}
