//! Hello: a router's name, state and hashes, as JSON.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::RouterId;

/// Maximum size of a hello in bytes.
const MOST_BYTES: usize = 4_096;
/// Maximum length of a text in a hello, in characters.
const MOST_CHARS: usize = 128;

/// Name, state and hashes of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HelloMessage {
    /// Identity of its run, as text.
    pub router: String,
    /// Configured name.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// State.
    pub state: RouterState,
    /// Hash of its pools and workers.
    pub fleet_hash: String,
    /// Hash of its configuration file.
    pub config_hash: String,
    /// Milliseconds of its monotonic clock when it was sent.
    pub sent_ms: u64,
    /// Fill of its index at the start; `None` of a router of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<IndexFill>,
}

/// Fill of a router's index at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct IndexFill {
    /// State.
    pub state: FillState,
    /// Feeds that are not filled, or were not when the time for the fill was over.
    pub unfilled: u32,
    /// Feeds whose known messages do not reach back to the start of their engine.
    pub incomplete: u32,
    /// Feeds that were filled from another router.
    pub from_routers: u32,
}

/// State of the fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillState {
    /// The start waits for feeds.
    Filling,
    /// All feeds were filled.
    Filled,
    /// The time for the fill was over before.
    TimedOut,
}

/// State of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouterState {
    /// Start, before the first request.
    Starting,
    /// Service.
    Ready,
    /// Drain before the end.
    Draining,
}

impl RouterState {
    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// Error of a hello that cannot be read.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum HelloError {
    /// Too many bytes.
    #[error("the hello is larger than {MOST_BYTES} bytes")]
    Large,
    /// Bytes that are not the JSON of a hello.
    #[error("the hello is not readable")]
    Unreadable,
    /// No valid identity.
    #[error("the hello has no valid router id")]
    Router,
}

impl HelloMessage {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a hello. Long texts are cut.
    ///
    /// # Errors
    /// [`HelloError`] where it is none.
    pub fn decode(bytes: &[u8]) -> Result<(RouterId, Self), HelloError> {
        if bytes.len() > MOST_BYTES {
            return Err(HelloError::Large);
        }
        let mut hello: Self = serde_json::from_slice(bytes).map_err(|_| HelloError::Unreadable)?;
        let router = RouterId::parse(&hello.router).ok_or(HelloError::Router)?;
        for text in [
            &mut hello.name,
            &mut hello.version,
            &mut hello.fleet_hash,
            &mut hello.config_hash,
        ] {
            if let Some((end, _)) = text.char_indices().nth(MOST_CHARS) {
                text.truncate(end);
            }
        }
        Ok((router, hello))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> HelloMessage {
        HelloMessage {
            router: RouterId(7).to_string(),
            name: "router-a".to_owned(),
            version: "0.1.0".to_owned(),
            state: RouterState::Ready,
            fleet_hash: "f".to_owned(),
            config_hash: "c".to_owned(),
            sent_ms: 5,
            fill: Some(IndexFill {
                state: FillState::TimedOut,
                unfilled: 1,
                incomplete: 2,
                from_routers: 3,
            }),
        }
    }

    #[test]
    fn a_hello_is_read_back_also_with_members_of_other_versions() {
        assert_eq!(
            HelloMessage::decode(&hello().encode()),
            Ok((RouterId(7), hello()))
        );
        let older = HelloMessage {
            fill: None,
            ..hello()
        };
        assert_eq!(
            HelloMessage::decode(&older.encode()),
            Ok((RouterId(7), older.clone()))
        );
        let later = String::from_utf8(hello().encode())
            .unwrap()
            .replacen('{', "{\"zone\":1,", 1);
        assert_eq!(HelloMessage::decode(later.as_bytes()), Ok((RouterId(7), hello())));
    }

    #[test]
    fn a_hello_is_bounded() {
        let long = HelloMessage {
            name: "é".repeat(500),
            ..hello()
        };
        let (_, cut) = HelloMessage::decode(&long.encode()).unwrap();
        assert_eq!(cut.name.chars().count(), MOST_CHARS);
        assert_eq!(
            HelloMessage::decode(&[b' '; MOST_BYTES + 1]),
            Err(HelloError::Large)
        );
        assert_eq!(HelloMessage::decode(b"{}"), Err(HelloError::Unreadable));
        let nameless = HelloMessage {
            router: "me".to_owned(),
            ..hello()
        };
        assert_eq!(HelloMessage::decode(&nameless.encode()), Err(HelloError::Router));
    }
}
