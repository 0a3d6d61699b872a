//! `[traces]`: traces of requests, sent to an OpenTelemetry collector.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;
use crate::document::value::{Item, Text};
use crate::key::{self, KeySource};
use crate::pools::endpoint::worker_url;

/// `[traces]`.
#[derive(Debug, Clone, PartialEq)]
pub struct TracesConfig {
    /// URL of the collector, with or without a path.
    pub endpoint: String,
    /// Headers of every export, in the order of the file.
    pub headers: Vec<TraceHeader>,
    /// Share of the traces that begin at the router and are sampled, from 0 to 1.
    pub sample: f64,
    /// Time to the first token above which a request is exported in any case.
    pub slow: Option<Duration>,
    /// Rate limit of sampling that clients force, in requests a second.
    pub parent_per_second: u32,
    /// Most traces that wait for their export.
    pub queue: u32,
    /// Most traces of one export.
    pub batch: u32,
    /// Longest wait for a full batch.
    pub every: Duration,
    /// Set if exports are compressed with gzip.
    pub gzip: bool,
    /// Attributes of the resource, in the order of the file.
    pub resource: Vec<ResourceAttribute>,
}

/// Header of every export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceHeader {
    /// Name, in lower case.
    pub name: String,
    /// Location of the value.
    pub value: KeySource,
}

/// Attribute of the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceAttribute {
    /// Name, such as `deployment.environment.name`.
    pub name: String,
    /// Value.
    pub value: String,
}

/// Headers that the exporter sets itself.
const OWN_HEADERS: [&str; 4] = ["content-encoding", "content-length", "content-type", "host"];
/// Most headers, and most attributes.
const MOST: usize = 32;
/// Longest name or value, in bytes.
const LONGEST: usize = 1_024;
const QUEUES: RangeInclusive<u64> = 1..=65_536;
const WAITS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);

pub(crate) fn read(section: Option<Section<'_>>) -> Option<TracesConfig> {
    let mut traces = section?;
    let endpoint = traces.required("endpoint", "\"http://127.0.0.1:4318\"");
    let endpoint = endpoint.and_then(|item| read_endpoint(&item));
    let headers = traces.section("headers", "`[traces.headers]`");
    let resource = traces.section("resource", "`[traces.resource]`");
    let small = |count: u64| u32::try_from(count).expect("within a range that ends at a u32");
    let config = TracesConfig {
        endpoint: endpoint.clone().unwrap_or_default(),
        headers: headers.map_or_else(Vec::new, |section| entries(&section, read_header)),
        sample: traces
            .item("sample")
            .and_then(|item| item.not_negative(1.0))
            .unwrap_or(0.01),
        slow: traces.item("slow").and_then(|item| item.duration(&TIMEOUTS)),
        parent_per_second: small(traces.count("parent-per-second", 100, 0..=1_000_000)),
        queue: small(traces.count("queue", 2_048, QUEUES)),
        batch: small(traces.count("batch", 512, QUEUES)),
        every: traces.duration("every", Duration::from_secs(1), WAITS),
        gzip: traces.choice("compression", true, &[("gzip", true), ("none", false)]),
        resource: resource.map_or_else(Vec::new, |section| entries(&section, read_attribute)),
    };
    traces.finish();
    endpoint.map(|_| config)
}

/// Reads a URL whose path may go on after the port.
fn read_endpoint(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    let host = text.text.find("://").map_or(0, |at| at + 3);
    let path = text.text[host..]
        .find('/')
        .map_or(text.text.len(), |at| host + at);
    let (base, path) = text.text.split_at(path);
    let is_path = |byte: u8| byte.is_ascii_graphic() && !b"?#\"<>\\^`{|}".contains(&byte);
    if !path.bytes().all(is_path) {
        let problem = Problem::new(
            Code::InvalidAddress,
            &text.span,
            "the path of `endpoint` has a query, or a character that no path has",
        );
        item.report
            .push(problem.help("end it at the path: `/v1/traces` is added where it is missing"));
        return None;
    }
    let span = text.span.clone();
    let base = worker_url(&Text { text: base, span }, item.report)?;
    Some(format!("{base}{path}"))
}

/// Reads the entries of a table whose keys are names.
fn entries<T>(section: &Section<'_>, read: fn(&Item<'_>) -> Option<T>) -> Vec<T> {
    let items = section.entries();
    if let Some(excess) = items.get(MOST) {
        let message = format!("more than {MOST} entries");
        let problem = Problem::new(Code::InvalidValue, &excess.key_span, message);
        section.report().push(problem.help("remove some of them"));
    }
    items.iter().take(MOST).filter_map(read).collect()
}

fn read_header(item: &Item<'_>) -> Option<TraceHeader> {
    let name = item.key.to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= LONGEST && name.bytes().all(is_token);
    let is_own = OWN_HEADERS.contains(&name.as_str());
    if !is_name || is_own {
        let message = match is_own {
            true => format!("the exporter sets the header `{name}` itself"),
            false => format!("`{}` is not the name of a header", item.key),
        };
        let problem = Problem::new(Code::InvalidName, &item.key_span, message);
        item.report
            .push(problem.help("write a name alone, for example authorization = { env = \"OTLP_KEY\" }"));
        return None;
    }
    let value = key::read(item)?;
    Some(TraceHeader { name, value })
}

fn read_attribute(item: &Item<'_>) -> Option<ResourceAttribute> {
    let value = item.text()?;
    if item.key.is_empty() || item.key.len() > LONGEST || value.text.len() > LONGEST {
        let message = format!("`{}` has an empty name, or more than {LONGEST} bytes", item.key);
        let problem = Problem::new(Code::InvalidValue, &value.span, message);
        item.report.push(
            problem.help("name a short attribute, for example \"deployment.environment.name\" = \"prod\""),
        );
        return None;
    }
    Some(ResourceAttribute {
        name: item.key.clone(),
        value: value.text.to_owned(),
    })
}
