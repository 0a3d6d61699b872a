//! `[kv-events]`: memory limits of KV event publishers; and a pool's settings for its workers' publishers.

use std::ops::RangeInclusive;

use crate::document::code::Code;
use crate::document::redact::without_user;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::value::{Item, Text};
use crate::key::{self, KeySource};
use crate::z85;

/// `[kv-events]`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Longest frame.
    pub max_frame: u64,
    /// Longest message over all frames.
    pub max_message: u64,
    /// Buffered messages of one socket.
    pub feed_buffer: u64,
    /// Buffered messages of all feeds together.
    pub total_buffer: u64,
}

impl Default for KvEventsConfig {
    fn default() -> Self {
        Self {
            max_frame: 4 << 20,
            max_message: 5 << 20,
            feed_buffer: 16 << 20,
            total_buffer: 256 << 20,
        }
    }
}

/// A pool's settings for its workers' event publishers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolEventsConfig {
    /// Hosts besides a worker's own that it may name as publisher.
    pub hosts: Vec<String>,
    /// Workers on other machines may name `ipc://` endpoints.
    pub ipc: bool,
    /// Keys of the publishers' CURVE sockets; `None` for unencrypted ones.
    pub curve: Option<CurveConfig>,
}

/// `kv-curve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurveConfig {
    /// The publishers' public key.
    pub server: [u8; 32],
    /// Location of our secret key, in Z85.
    pub client: KeySource,
}

const FRAMES: RangeInclusive<u64> = (64 << 10)..=(64 << 20);
const MESSAGES: RangeInclusive<u64> = (64 << 10)..=(128 << 20);
const FEED_BUFFERS: RangeInclusive<u64> = (64 << 10)..=(1 << 30);
const TOTAL_BUFFERS: RangeInclusive<u64> = (1 << 20)..=(64 << 30);
/// Most hosts that a pool may list.
const MOST_HOSTS: usize = 1_000;
const IPC: &str = "ipc://";

pub(crate) fn read(section: Option<Section<'_>>) -> KvEventsConfig {
    let default = KvEventsConfig::default();
    let Some(mut section) = section else {
        return default;
    };
    let limits = [
        ("max-frame", default.max_frame, FRAMES),
        ("max-message", default.max_message, MESSAGES),
        ("feed-buffer", default.feed_buffer, FEED_BUFFERS),
        ("total-buffer", default.total_buffer, TOTAL_BUFFERS),
    ];
    let limits = limits.map(|(key, default, range)| {
        let item = section.item(key);
        let size = item.as_ref().and_then(|item| item.size(&range));
        (key, size.unwrap_or(default), item)
    });
    for pair in limits.windows(2) {
        let [(smaller, least, first), (larger, size, second)] = pair else {
            continue;
        };
        if let (true, Some(item)) = (size < least, second.as_ref().or(first.as_ref())) {
            let message = format!(
                "`{larger}` is smaller than `{smaller}`, which is {} KiB",
                least >> 10
            );
            let help = format!("raise `{larger}` or lower `{smaller}`: each holds the one before it");
            let problem = Problem::new(Code::OutOfRange, &item.span, message).help(help);
            section.report().push(problem);
        }
    }
    let [max_frame, max_message, feed_buffer, total_buffer] = limits.map(|(_, size, _)| size);
    section.finish();
    KvEventsConfig {
        max_frame,
        max_message,
        feed_buffer,
        total_buffer,
    }
}

/// Reads `kv-events-hosts` and `kv-curve` of a pool.
pub(crate) fn read_pool(pool: &mut Section<'_>, title: String) -> PoolEventsConfig {
    let mut config = PoolEventsConfig::default();
    let report = pool.report();
    let listed = pool.item("kv-events-hosts");
    let hosts = listed.as_ref().and_then(Item::texts).unwrap_or_default();
    if let Some(item) = listed.as_ref().filter(|_| hosts.len() > MOST_HOSTS) {
        let message = format!("`kv-events-hosts` lists more than {MOST_HOSTS} hosts");
        report.push(Problem::new(Code::OutOfRange, &item.span, message));
    }
    for host in hosts.iter().take(MOST_HOSTS) {
        if host.text == IPC {
            config.ipc = true;
        } else {
            config.hosts.extend(read_host(host, report));
        }
    }
    config.curve = pool
        .item("kv-curve")
        .and_then(|item| Section::of(&item, title.clone()).and_then(read_curve));
    config
}

fn read_host(host: &Text<'_>, report: &Report) -> Option<String> {
    let inner = host
        .text
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    let name = inner.unwrap_or(host.text);
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if is_address || (!name.is_empty() && name.len() <= 253 && name.chars().all(is_name)) {
        return Some(name.to_ascii_lowercase());
    }
    report.push(
        Problem::new(
            Code::InvalidAddress,
            &host.span,
            format!("`{}` is not a host", without_user(host.text)),
        )
        .help("write a host name or an address without a port, for example \"10.0.0.7\"; or \"ipc://\" for sockets in files"),
    );
    None
}

fn read_curve(mut curve: Section<'_>) -> Option<CurveConfig> {
    let server = curve.required("server-key", "\"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"");
    let client = curve.required("client-key", "{ file = \"kv-client.key\" }");
    let server = server.and_then(|item| {
        let text = item.text()?;
        let key = z85::key(text.text);
        if key.is_none() {
            let message = "`server-key` is not a public key in Z85: those have 40 characters";
            let problem = Problem::new(Code::InvalidValue, &text.span, message);
            item.report
                .push(problem.help("copy the public key that the engine's ZMQ certificate names"));
        }
        key
    });
    let client = client.and_then(|item| key::read(&item));
    curve.finish();
    Some(CurveConfig {
        server: server?,
        client: client?,
    })
}
