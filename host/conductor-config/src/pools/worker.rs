//! `[[pools.NAME.workers]]`: one inference server.

use std::collections::{BTreeMap, HashMap};

use routing::Role;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::Text;
use crate::name;
use crate::pools::data_parallel::{self, DataParallel, rank_name};
use crate::pools::endpoint::worker_url;
use crate::pools::kv_events::{self, KvEvents};
use crate::pools::pd::{self, DeclaredPd};
use crate::unique::claim;

/// `[[pools.NAME.workers]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerConfig {
    /// Name, unique over all pools; by default `host:port` of the URL.
    pub name: String,
    /// `http://host:port` or `https://host:port`, unique over all pools.
    pub url: String,
    /// Role in split requests.
    pub role: Role,
    /// Names of the models it serves; empty for any.
    pub models: Vec<String>,
    /// LoRA adapters it serves, by their names in requests.
    pub adapters: Vec<String>,
    /// Relative speed, above 0.
    pub weight: f64,
    /// The worker gets no new requests.
    pub drain: bool,
    /// Labels for policies.
    pub labels: BTreeMap<String, String>,
    /// A prefill worker's bootstrap server, `http://host:port`; `None` for the URL's host and the default port.
    pub bootstrap: Option<String>,
    /// Engines behind the URL that requests can be pinned to; `None` for one worker.
    pub data_parallel: Option<DataParallel>,
    /// Location of its KV events: with `data_parallel` one feed per rank, in order.
    pub kv_events: KvEvents,
}

/// Values that only one worker of the whole fleet may have, with their first positions.
#[derive(Debug, Default)]
pub(crate) struct ClaimedValues {
    names: HashMap<String, Span>,
    urls: HashMap<String, Span>,
    pub(crate) endpoints: HashMap<String, Span>,
}

/// Largest weight; more is a typing error.
const MOST_WEIGHT: f64 = 1e6;

/// Reads a worker; `None` without a usable URL. `pd` belongs to its pool.
pub(crate) fn read(
    mut worker: Section<'_>,
    pd: Option<&DeclaredPd>,
    taken: &mut ClaimedValues,
) -> Option<WorkerConfig> {
    let report = worker.report();
    let url_text = worker
        .required("url", "\"http://127.0.0.1:8000\"")
        .and_then(|item| item.text());
    let name_text = worker.text("name");
    let url = url_text.as_ref().and_then(|text| worker_url(text, report));
    let url_is_new = match (&url, &url_text) {
        (Some(url), Some(text)) => claim(&mut taken.urls, url, &text.span, Code::SameAddress, "URL", report),
        _ => true,
    };
    let name = read_name(name_text.as_ref(), url.as_deref());
    let data_parallel_item = worker.item("data-parallel");
    let data_parallel = data_parallel_item.as_ref().and_then(data_parallel::read);
    let name_span = name_text.or(url_text).map(|text| text.span);
    if let (Some(name), Some(span), true) = (&name, &name_span, url_is_new) {
        name::check(name, name::IN_WORKER_NAMES, "a worker", span, report);
        take_names(&mut taken.names, name, data_parallel, span, report);
    }
    let role = pd::read_role(&mut worker, pd);
    let config = WorkerConfig {
        name: name.unwrap_or_default(),
        url: url.clone().unwrap_or_default(),
        role: role.unwrap_or(Role::Mixed),
        bootstrap: pd::read_bootstrap(&mut worker, role, pd),
        data_parallel,
        models: read_models(&mut worker, "models"),
        adapters: read_models(&mut worker, "adapters"),
        weight: worker
            .item("weight")
            .and_then(|item| item.positive(MOST_WEIGHT))
            .unwrap_or(1.0),
        drain: worker.item("drain").and_then(|item| item.flag()).unwrap_or(false),
        labels: read_labels(&mut worker),
        kv_events: kv_events::read(
            &mut worker,
            data_parallel_item.as_ref().map(|item| (item, data_parallel)),
            &mut taken.endpoints,
        ),
    };
    worker.finish();
    url.map(|_| config)
}

fn read_name(name: Option<&Text<'_>>, url: Option<&str>) -> Option<String> {
    match (name, url) {
        (Some(name), _) => Some(name.text.to_owned()),
        (None, Some(url)) => url.split_once("://").map(|(_, address)| address.to_owned()),
        (None, None) => None,
    }
}

/// Claims the name, and those of its ranks.
fn take_names(
    taken: &mut HashMap<String, Span>,
    name: &str,
    data_parallel: Option<DataParallel>,
    span: &Span,
    report: &Report,
) {
    let ranks = data_parallel.iter().flat_map(DataParallel::ranks);
    let ranks = ranks.map(|rank| rank_name(name, rank));
    let mut names = std::iter::once(name.to_owned()).chain(ranks);
    // One diagnostic is enough.
    let _ = names.all(|name| claim(taken, &name, span, Code::DuplicateWorker, "name", report));
}

fn read_models(worker: &mut Section<'_>, key: &'static str) -> Vec<String> {
    let report = worker.report();
    let models = worker.texts(key);
    for model in models.iter().filter(|model| model.text.is_empty()) {
        report.push(
            Problem::new(
                Code::InvalidValue,
                &model.span,
                format!("a name in `{key}` is empty"),
            )
            .help("write it as requests give it in `model`"),
        );
    }
    models.into_iter().map(|model| model.text.to_owned()).collect()
}

fn read_labels(worker: &mut Section<'_>) -> BTreeMap<String, String> {
    let Some(labels) = worker.section("labels", "`labels`") else {
        return BTreeMap::new();
    };
    let entries = labels.entries();
    let labels = entries.iter().filter_map(|entry| {
        name::check(
            &entry.key,
            name::IN_NAMES,
            "a label",
            &entry.key_span,
            entry.report,
        );
        Some((entry.key.clone(), entry.text()?.text.to_owned()))
    });
    labels.collect()
}
