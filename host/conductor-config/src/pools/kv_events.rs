//! Location of a worker's KV events: discovered or configured, one feed per data-parallel rank.

use std::collections::HashMap;

use routing::DpRank;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::{Item, Text};
use crate::pools::data_parallel::{DataParallel, FIRST_RANKS, MOST_RANKS};
use crate::pools::endpoint::{bind_endpoint, shifted, zmq_endpoint};
use crate::unique::claim;

/// Location of a worker's KV events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KvEvents {
    /// Discovered by a query of the worker.
    #[default]
    Auto,
    /// Not followed.
    Off,
    /// One configured feed per data-parallel rank, at least one.
    At(Vec<KvFeedConfig>),
}

impl KvEvents {
    /// Returns the configured feeds.
    #[must_use]
    pub fn feeds(&self) -> &[KvFeedConfig] {
        match self {
            Self::Auto | Self::Off => &[],
            Self::At(feeds) => feeds,
        }
    }
}

/// A publisher of KV events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvFeedConfig {
    /// The ZMQ endpoint to subscribe at.
    pub endpoint: String,
    /// We bind the endpoint, and the engine connects.
    pub bind: bool,
    /// The ZMQ endpoint that replays missed batches; always connected to.
    pub replay: Option<String>,
    /// Prefix of the topics to subscribe to; empty for all.
    pub topic: String,
    /// Data-parallel rank of batches that do not name one.
    pub rank: Option<DpRank>,
}

/// Keys that need the address of a publisher.
const DEPENDANTS: [&str; 5] = ["kv-bind", "kv-replay", "kv-topic", "dp-rank", "dp-size"];

/// Reads the keys. `data_parallel` is the worker's, if set, with its value if readable.
pub(crate) fn read(
    worker: &mut Section<'_>,
    data_parallel: Option<(&Item<'_>, Option<DataParallel>)>,
    taken: &mut HashMap<String, Span>,
) -> KvEvents {
    let report = worker.report();
    let events = worker.item("kv-events");
    let mut dependants = DEPENDANTS.map(|key| worker.item(key));
    if let Some((item, _)) = data_parallel {
        refuse_numbers(item, &mut dependants, report);
    }
    let data_parallel = data_parallel.and_then(|(_, data_parallel)| data_parallel);
    let text = events.as_ref().map(Item::text);
    let word = match &text {
        None => Some(KvEvents::Auto),
        Some(None) => return KvEvents::Off,
        Some(Some(text)) => match text.text {
            "auto" => Some(KvEvents::Auto),
            "off" => Some(KvEvents::Off),
            _ => None,
        },
    };
    if let Some(word) = word {
        refuse_dependants(&dependants, report);
        return word;
    }
    let feeds = text
        .flatten()
        .and_then(|text| read_feeds(&text, dependants, data_parallel, taken, report));
    feeds.map_or(KvEvents::Off, KvEvents::At)
}

/// Refuses `dp-rank` and `dp-size`, which number the feeds of a single worker.
fn refuse_numbers(data_parallel: &Item<'_>, dependants: &mut [Option<Item<'_>>], report: &Report) {
    for dependant in dependants {
        let Some(item) = dependant.take_if(|item| matches!(item.key.as_str(), "dp-rank" | "dp-size")) else {
            continue;
        };
        report.push(
            Problem::new(
                Code::ConflictingKeys,
                &item.key_span,
                format!("`{}` and `data-parallel` exclude each other", item.key),
            )
            .also(&data_parallel.key_span, "this numbers the ranks already")
            .help(
                "keep data-parallel = { ranks = .., first = .. } to place requests rank by rank, or `dp-rank` and \
                 `dp-size` to let the engine choose the rank",
            ),
        );
    }
}

fn refuse_dependants(dependants: &[Option<Item<'_>>], report: &Report) {
    for item in dependants.iter().flatten() {
        report.push(
            Problem::new(
                Code::NeedsKey,
                &item.key_span,
                format!("`{}` has no effect without an address in `kv-events`", item.key),
            )
            .help(
                "add kv-events = \"tcp://HOST:PORT\", where the engine publishes its KV events; \
                 if the worker is queried for its events, its answer includes this",
            ),
        );
    }
}

fn read_feeds(
    events: &Text<'_>,
    [bind, replay, topic, rank, size]: [Option<Item<'_>>; 5],
    data_parallel: Option<DataParallel>,
    taken: &mut HashMap<String, Span>,
    report: &Report,
) -> Option<Vec<KvFeedConfig>> {
    let bind = bind.and_then(|item| item.flag()).unwrap_or(false);
    let endpoint = if bind {
        bind_endpoint(events, report)
    } else {
        zmq_endpoint(events, report)
    };
    let replay = replay.and_then(|item| item.text());
    let replay_endpoint = replay.as_ref().and_then(|text| zmq_endpoint(text, report));
    let topic = topic.and_then(|item| item.text());
    let rank = rank.and_then(|item| item.count(&FIRST_RANKS));
    let rank = rank.and_then(|rank| u16::try_from(rank).ok());
    let rank = data_parallel.map_or(rank, |data_parallel| Some(data_parallel.first));
    let size = size.and_then(|item| item.count(&(1..=MOST_RANKS)));
    let size = size.and_then(|size| u16::try_from(size).ok());
    let ranks = data_parallel.map_or(size, |data_parallel| Some(data_parallel.ranks));
    let endpoint = endpoint?;
    let mut feeds = Vec::new();
    for shift in 0..ranks.unwrap_or(1) {
        let mut place = |text: &Text<'_>, endpoint: &str| {
            let endpoint = shifted(endpoint, shift, text, report)?;
            claim(
                taken,
                &endpoint,
                &text.span,
                Code::SameAddress,
                "endpoint",
                report,
            )
            .then_some(endpoint)
        };
        let placed = place(events, &endpoint);
        let replay = match (&replay, &replay_endpoint) {
            (Some(text), Some(endpoint)) => place(text, endpoint),
            _ => None,
        };
        feeds.push(KvFeedConfig {
            endpoint: placed?,
            bind,
            replay,
            topic: topic
                .as_ref()
                .map_or(String::new(), |topic| topic.text.to_owned()),
            rank: match ranks {
                Some(_) => Some(DpRank(rank.unwrap_or(0) + shift)),
                None => rank.map(DpRank),
            },
        });
    }
    Some(feeds)
}
