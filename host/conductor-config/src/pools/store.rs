//! `[stores.NAME]`: a KV store shared by workers, such as Mooncake's, with events of its objects.

use std::collections::HashMap;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Item;
use crate::name;
use crate::pools::DeclaredPool;
use crate::pools::endpoint::{worker_url, zmq_endpoint};
use crate::unique::claim;

/// `[stores.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Unique name.
    pub name: String,
    /// The ZMQ endpoint of its publisher, to connect to.
    pub endpoint: String,
    /// `http://host:port` of its master's admin pages, which report if it publishes.
    pub status: Option<String>,
    /// Objects per complete block; `None` for the number of kinds ever seen.
    pub shards: Option<u32>,
    /// Pools whose workers share it, all of the configuration.
    pub pools: Vec<String>,
}

/// Most objects per block.
const MOST_SHARDS: u64 = 128;

pub(crate) fn read(item: Option<&Item<'_>>, pools: &[DeclaredPool], report: &Report) -> Vec<StoreConfig> {
    let section = item.and_then(|item| Section::of(item, "`[stores.NAME]`".to_owned()));
    let entries = section.map(|stores| stores.entries()).unwrap_or_default();
    let mut taken = HashMap::new();
    entries
        .iter()
        .filter_map(|entry| read_one(entry, pools, &mut taken, report))
        .collect()
}

fn read_one(
    entry: &Item<'_>,
    pools: &[DeclaredPool],
    taken: &mut HashMap<String, Span>,
    report: &Report,
) -> Option<StoreConfig> {
    name::check(&entry.key, name::IN_NAMES, "a store", &entry.key_span, report);
    let mut store = Section::of(entry, format!("`[stores.{}]`", entry.key))?;
    let events = store
        .required(
            "kv-events",
            "\"tcp://HOST:PORT\", where the store publishes its events",
        )
        .and_then(|item| item.text());
    let endpoint = events.as_ref().and_then(|text| {
        let endpoint = zmq_endpoint(text, report)?;
        let is_new = claim(
            taken,
            &endpoint,
            &text.span,
            Code::SameAddress,
            "endpoint",
            report,
        );
        (is_new && is_no_workers(&endpoint, &text.span, pools, report)).then_some(endpoint)
    });
    let status = store.text("status").and_then(|text| worker_url(&text, report));
    let shards = store
        .item("shards")
        .and_then(|item| item.count(&(1..=MOST_SHARDS)));
    let config = StoreConfig {
        name: entry.key.clone(),
        endpoint: endpoint.clone().unwrap_or_default(),
        status,
        shards: shards.and_then(|shards| u32::try_from(shards).ok()),
        pools: read_pools(&mut store, pools),
    };
    store.finish();
    endpoint.map(|_| config)
}

/// Checks that no worker's events come from this endpoint.
fn is_no_workers(endpoint: &str, span: &Span, pools: &[DeclaredPool], report: &Report) -> bool {
    let mut workers = pools.iter().flat_map(|pool| &pool.config.workers);
    let same = workers.find(|worker| {
        worker
            .kv_events
            .feeds()
            .iter()
            .any(|feed| feed.endpoint == endpoint)
    });
    if let Some(worker) = same {
        report.push(
            Problem::new(
                Code::SameAddress,
                span,
                format!(
                    "the endpoint `{endpoint}` is that of the worker `{}`",
                    worker.name
                ),
            )
            .help("a store publishes its own events, apart from the engines'"),
        );
    }
    same.is_none()
}

/// Reads the pools; without the key, all pools.
fn read_pools(store: &mut Section<'_>, pools: &[DeclaredPool]) -> Vec<String> {
    let all = || pools.iter().map(|pool| pool.config.name.clone());
    let report = store.report();
    let Some(named) = store.item("pools").and_then(|item| item.texts()) else {
        return all().collect();
    };
    for pool in &named {
        if all().all(|known| known != pool.text) {
            let known: Vec<String> = all().collect();
            report.push(
                Problem::new(
                    Code::NoSuchPool,
                    &pool.span,
                    format!("there is no pool `{}`", pool.text),
                )
                .maybe_help(crate::document::suggest::help(
                    pool.text,
                    known.iter().map(String::as_str),
                )),
            );
        }
    }
    named.into_iter().map(|pool| pool.text.to_owned()).collect()
}
