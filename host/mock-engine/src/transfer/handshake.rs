//! Handshake members of requests: parsing of the information about the other leg.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::transfer::fabric::Key;

/// SGLang's default bootstrap port.
const DEFAULT_BOOTSTRAP_PORT: u64 = 8998;

/// Handshake members of a body.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Members {
    kv_transfer_params: Option<Map<String, Value>>,
    bootstrap_host: Option<Value>,
    bootstrap_port: Option<Value>,
    bootstrap_room: Option<Value>,
}

/// Role in vLLM's `kv_transfer_params`.
#[derive(Debug)]
pub(super) enum Params<'a> {
    /// Neither leg.
    None,
    /// Another engine will decode.
    RemoteDecode(&'a Map<String, Value>),
    /// Another engine has computed the prompt.
    RemotePrefill(&'a Map<String, Value>),
}

/// Location of the blocks for a nixl decode.
#[derive(Debug)]
pub(super) struct NixlSource {
    pub(super) key: Key,
    pub(super) port: Option<u16>,
    pub(super) cached_tokens: u32,
}

/// Location of the blocks for a mooncake decode.
#[derive(Debug)]
pub(super) struct MooncakeSource {
    pub(super) key: Key,
    /// `http://host:port`.
    pub(super) bootstrap: String,
}

impl Members {
    pub(super) fn params(&self) -> Params<'_> {
        let Some(params) = &self.kv_transfer_params else {
            return Params::None;
        };
        let is_set = |name| params.get(name).and_then(Value::as_bool).unwrap_or(false);
        if is_set("do_remote_decode") {
            Params::RemoteDecode(params)
        } else if is_set("do_remote_prefill") {
            Params::RemotePrefill(params)
        } else {
            Params::None
        }
    }

    /// Returns SGLang's rooms, one per prompt and choice: a list has one for each prompt, a single number counts up.
    /// `None` if there is none, or too few.
    pub(super) fn rooms(&self, prompts: usize, choices: usize) -> Option<Vec<Key>> {
        let child = |index: usize| {
            let (prompt, copy) = (index / choices, index % choices);
            let request = match self.bootstrap_room.as_ref()? {
                Value::Array(rooms) => format!("{}/{copy}", rooms.get(prompt)?.as_u64()?),
                room => format!("{}/0", room.as_u64()?.checked_add(index as u64)?),
            };
            let host = pick(self.bootstrap_host.as_ref(), prompt)?.as_str()?;
            let host = if host == "localhost" { "127.0.0.1" } else { host };
            let port = pick(self.bootstrap_port.as_ref(), prompt).and_then(Value::as_u64);
            Some(Key {
                engine: format!("{host}:{}", port.unwrap_or(DEFAULT_BOOTSTRAP_PORT)),
                request,
            })
        };
        (0..prompts * choices).map(child).collect()
    }
}

/// Returns an element of a list, or the single value for all.
fn pick(value: Option<&Value>, prompt: usize) -> Option<&Value> {
    match value? {
        Value::Array(values) => values.get(prompt),
        value => Some(value),
    }
}

fn text(params: &Map<String, Value>, name: &str) -> Option<String> {
    params.get(name)?.as_str().map(str::to_owned)
}

/// Returns the transfer id of a mooncake prefill.
pub(super) fn transfer_id(params: &Map<String, Value>) -> Option<String> {
    text(params, "transfer_id")
}

/// Returns `None` if vLLM logs that the request "will not utilize KVTransfer", and then waits forever.
pub(super) fn nixl_source(params: &Map<String, Value>) -> Option<NixlSource> {
    params.get("remote_block_ids")?.as_array()?;
    text(params, "remote_host")?;
    let number = |name| params.get(name).and_then(Value::as_u64);
    Some(NixlSource {
        key: Key {
            engine: text(params, "remote_engine_id")?,
            request: text(params, "remote_request_id")?,
        },
        port: u16::try_from(number("remote_port")?).ok(),
        cached_tokens: number("remote_prefill_cached_tokens")
            .and_then(|tokens| u32::try_from(tokens).ok())
            .unwrap_or(0),
    })
}

/// Returns `None` as [`nixl_source`] does.
pub(super) fn mooncake_source(params: &Map<String, Value>) -> Option<MooncakeSource> {
    Some(MooncakeSource {
        key: Key {
            engine: text(params, "remote_engine_id")?,
            request: transfer_id(params)?,
        },
        bootstrap: text(params, "remote_bootstrap_addr")?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> Members {
        serde_json::from_value(value).expect("members")
    }

    #[track_caller]
    fn check_rooms(value: Value, prompts: usize, choices: usize, expected: Option<&[&str]>) {
        let found = members(value).rooms(prompts, choices).map(|rooms| {
            let name = |key: Key| format!("{} {}", key.engine, key.request);
            rooms.into_iter().map(name).collect::<Vec<_>>()
        });
        assert_eq!(
            found.as_deref(),
            expected
                .map(|rooms| rooms.iter().map(|room| (*room).to_owned()).collect::<Vec<_>>())
                .as_deref()
        );
    }

    #[test]
    fn every_prompt_has_a_room() {
        let one = json!({"bootstrap_host": "localhost", "bootstrap_port": null, "bootstrap_room": 7});
        check_rooms(one.clone(), 1, 1, Some(&["127.0.0.1:8998 7/0"]));
        check_rooms(one, 1, 2, Some(&["127.0.0.1:8998 7/0", "127.0.0.1:8998 8/0"]));
        let two = json!({
            "bootstrap_host": ["h", "h"], "bootstrap_port": [1, 1], "bootstrap_room": [7, i64::MAX],
        });
        check_rooms(two.clone(), 2, 1, Some(&["h:1 7/0", "h:1 9223372036854775807/0"]));
        check_rooms(two, 3, 1, None);
        check_rooms(json!({"bootstrap_host": "h", "bootstrap_port": 1}), 1, 1, None);
    }

    #[test]
    fn a_decode_leg_needs_every_field() {
        let whole = json!({
            "do_remote_prefill": true, "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h",
            "remote_port": 1, "remote_block_ids": [[1]],
        });
        let source = |params: &Value| nixl_source(params.as_object().expect("an object")).is_some();
        assert!(source(&whole));
        for name in [
            "remote_engine_id",
            "remote_request_id",
            "remote_host",
            "remote_port",
            "remote_block_ids",
        ] {
            let mut params = whole.clone();
            params[name].take();
            assert!(!source(&params), "{name}");
        }
    }
}
