//! KV event sources reported by engines: vLLM's `GET /kv_event_sources` (0.32) and the key `kv_events` of SGLang's
//! `GET /server_info` (0.5.23).
//!
//! Both report the bound addresses, so all interfaces (`*`) mean the host of the request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// A publisher, as reachable from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSource {
    /// Data-parallel rank of its events.
    pub rank: u16,
    /// PUB socket, for example `tcp://10.0.0.1:5557`.
    pub endpoint: String,
    /// ROUTER socket for replays.
    pub replay: Option<String>,
    /// Topic of its messages; empty for none.
    pub topic: String,
}

/// An engine's answer has another shape.
#[derive(Debug, Error)]
#[error("read where KV events are published")]
pub struct EventSourcesError {
    #[source]
    source: serde_json::Error,
}

/// Most ranks of one answer; more would be a malfunction.
const MOST_RANKS: u16 = 256;

#[derive(Deserialize)]
struct VllmSource {
    #[serde(default = "yes")]
    enable_kv_cache_events: bool,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    #[serde(default)]
    topic: Option<String>,
}

fn yes() -> bool {
    true
}

/// Returns the publishers in vLLM's `/kv_event_sources`, by rank; none if it publishes nothing. `host` is the host of
/// the request, IPv6 in brackets.
///
/// # Errors
/// [`EventSourcesError`] for other bodies.
pub fn vllm_event_sources(body: &[u8], host: &str) -> Result<Vec<EventSource>, EventSourcesError> {
    let listed: BTreeMap<String, VllmSource> = read(body)?;
    let mut sources: Vec<EventSource> = listed
        .into_iter()
        .filter(|(_, source)| source.enable_kv_cache_events && is_zmq(source.publisher.as_deref()))
        .filter_map(|(rank, source)| {
            let rank = rank.parse().ok().filter(|rank| *rank < MOST_RANKS)?;
            Some(EventSource {
                rank,
                endpoint: reachable(&source.endpoint?, host)?,
                replay: source.replay_endpoint.and_then(|replay| reachable(&replay, host)),
                topic: source.topic.unwrap_or_default(),
            })
        })
        .collect();
    sources.sort_by_key(|source| source.rank);
    Ok(sources)
}

#[derive(Deserialize)]
struct ServerInfo<'a> {
    #[serde(borrow)]
    kv_events: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SglangSource {
    publisher: Option<String>,
    endpoint_host: Option<String>,
    endpoint_port_base: Option<u16>,
    replay_endpoint_port_base: Option<u16>,
    #[serde(default)]
    topic: Option<String>,
    dp_size: Option<u16>,
}

/// Returns the publishers in SGLang's `/server_info`: rank r is at the base port plus r. None if it publishes nothing,
/// and for another engine's page at this path. `host` as in [`vllm_event_sources`].
///
/// # Errors
/// [`EventSourcesError`] for other bodies.
pub fn sglang_event_sources(body: &[u8], host: &str) -> Result<Vec<EventSource>, EventSourcesError> {
    let info: ServerInfo<'_> = read(body)?;
    let Some(events) = info.kv_events else {
        return Ok(Vec::new());
    };
    // An engine without events sends `null` too.
    let Some(events): Option<SglangSource> = read(events.get().as_bytes())? else {
        return Ok(Vec::new());
    };
    let (true, Some(base)) = (is_zmq(events.publisher.as_deref()), events.endpoint_port_base) else {
        return Ok(Vec::new());
    };
    let bound = events.endpoint_host.as_deref().unwrap_or("*");
    let at = |base: u16, rank: u16| {
        let port = base.checked_add(rank).filter(|port| *port > 0)?;
        reachable(&format!("tcp://{bound}:{port}"), host)
    };
    let ranks = 0..events.dp_size.unwrap_or(1).clamp(1, MOST_RANKS);
    let sources = ranks.filter_map(|rank| {
        Some(EventSource {
            rank,
            endpoint: at(base, rank)?,
            replay: events.replay_endpoint_port_base.and_then(|base| at(base, rank)),
            topic: events.topic.clone().unwrap_or_default(),
        })
    });
    Ok(sources.collect())
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, EventSourcesError> {
    serde_json::from_slice(body).map_err(|source| EventSourcesError { source })
}

/// The only other publisher publishes nothing.
fn is_zmq(publisher: Option<&str>) -> bool {
    publisher.is_none_or(|publisher| publisher == "zmq")
}

/// Converts a bound address to one to connect to; `None` if no other process can reach it.
fn reachable(bound: &str, host: &str) -> Option<String> {
    if bound.starts_with("ipc://") {
        return Some(bound.to_owned());
    }
    let (interface, port) = bound.strip_prefix("tcp://")?.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port > 0)?;
    match interface {
        "" => None,
        "*" | "0.0.0.0" | "[::]" | "::" => Some(format!("tcp://{host}:{port}")),
        _ => Some(bound.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn source(rank: u16, endpoint: &str, replay: Option<&str>, topic: &str) -> EventSource {
        EventSource {
            rank,
            endpoint: endpoint.to_owned(),
            replay: replay.map(str::to_owned),
            topic: topic.to_owned(),
        }
    }

    #[track_caller]
    fn vllm(body: &str, expected: &[EventSource]) {
        assert_eq!(
            vllm_event_sources(body.as_bytes(), "gpu-1").unwrap(),
            expected,
            "{body}"
        );
    }

    #[track_caller]
    fn sglang(body: &str, expected: &[EventSource]) {
        assert_eq!(
            sglang_event_sources(body.as_bytes(), "gpu-1").unwrap(),
            expected,
            "{body}"
        );
    }

    #[test]
    fn vllm_lists_its_ranks_and_every_interface_is_the_host_that_was_queried() {
        let rank = |rank: u16, port: u16| {
            format!(
                r#""{rank}":{{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:{port}","replay_endpoint":"tcp://*:{}","buffer_steps":10000,"topic":"kv"}}"#,
                port + 100
            )
        };
        vllm(
            &format!("{{{},{}}}", rank(10, 5567), rank(2, 5559)),
            &[
                source(2, "tcp://gpu-1:5559", Some("tcp://gpu-1:5659"), "kv"),
                source(10, "tcp://gpu-1:5567", Some("tcp://gpu-1:5667"), "kv"),
            ],
        );
        vllm(
            r#"{"0":{"endpoint":"tcp://10.0.0.9:41234","replay_endpoint":null}}"#,
            &[source(0, "tcp://10.0.0.9:41234", None, "")],
        );
    }

    #[test]
    fn an_engine_that_publishes_nothing_has_no_sources() {
        vllm("{}", &[]);
        vllm(
            r#"{"0":{"enable_kv_cache_events":false,"endpoint":"tcp://*:5557"}}"#,
            &[],
        );
        vllm(r#"{"0":{"publisher":"null","endpoint":"tcp://*:5557"}}"#, &[]);
        sglang(r#"{"kv_events":null}"#, &[]);
        sglang(r#"{"model_path":"x"}"#, &[]);
        sglang(r#"{"kv_events":{"publisher":"null"}}"#, &[]);
    }

    #[test]
    fn unreachable_endpoints_and_invalid_ranks_are_no_sources() {
        vllm(r#"{"0":{"endpoint":"inproc://events"}}"#, &[]);
        vllm(r#"{"0":{"endpoint":"tcp://*:0"}}"#, &[]);
        vllm(r#"{"x":{"endpoint":"tcp://*:5557"}}"#, &[]);
        vllm(r#"{"60000":{"endpoint":"tcp://*:5557"}}"#, &[]);
        vllm(
            r#"{"0":{"endpoint":"ipc:///run/kv","replay_endpoint":"inproc://r"}}"#,
            &[source(0, "ipc:///run/kv", None, "")],
        );
    }

    #[test]
    fn sglang_shifts_its_ports_by_the_rank() {
        sglang(
            r#"{"kv_events":{"publisher":"zmq","endpoint_host":"0.0.0.0","endpoint_port_base":5557,"topic":"kv","block_size":1,"dp_size":2,"replay_endpoint_port_base":5657,"load_topic":"load"}}"#,
            &[
                source(0, "tcp://gpu-1:5557", Some("tcp://gpu-1:5657"), "kv"),
                source(1, "tcp://gpu-1:5558", Some("tcp://gpu-1:5658"), "kv"),
            ],
        );
        sglang(
            r#"{"kv_events":{"endpoint_host":"10.0.0.9","endpoint_port_base":65535,"dp_size":3,"replay_endpoint_port_base":null}}"#,
            &[source(0, "tcp://10.0.0.9:65535", None, "")],
        );
    }

    #[test]
    fn a_page_of_another_form_is_an_error() {
        assert!(vllm_event_sources(b"[]", "h").is_err());
        assert!(vllm_event_sources(b"<html>", "h").is_err());
        assert!(sglang_event_sources(b"ok", "h").is_err());
        assert!(sglang_event_sources(br#"{"kv_events":7}"#, "h").is_err());
    }

    /// Returns the body of a page captured from vLLM 0.32, if the captures are available.
    fn captured(name: &str) -> Option<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/captures/http");
        let Ok(page) = fs::read(folder.join(name)) else {
            println!("skipped: {name} is not there");
            return None;
        };
        let head = page.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
        Some(page[head + 4..].to_vec())
    }

    #[test]
    fn the_captured_pages_of_vllm_are_read() {
        for (name, port) in [
            ("kv_event_sources.http", 5557),
            ("kv_event_sources_nodev.http", 5601),
        ] {
            let Some(body) = captured(name) else { continue };
            let replay = format!("tcp://[::1]:{}", port + 1);
            let expected = source(0, &format!("tcp://[::1]:{port}"), Some(&replay), "kv-events");
            assert_eq!(vllm_event_sources(&body, "[::1]").unwrap(), [expected]);
        }
        if let Some(body) = captured("server_info.http") {
            assert_eq!(sglang_event_sources(&body, "gpu-1").unwrap(), []);
        }
    }
}
