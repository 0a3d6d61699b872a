//! Answer of a Mooncake store to `GET /kv_events/status`.
//!
//! A `mooncake_master` built without its publisher accepts `--enable_kv_events` and publishes nothing. So does one
//! whose endpoint cannot be bound. In both cases the answer has `"enabled":false`
//! (`data/captures/mooncake/admin_http.json`).

use serde::Deserialize;
use thiserror::Error;

/// Status of a store's own publisher. Its endpoint is only in the store's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct StoreStatus {
    /// Events are published. Otherwise a subscription never receives anything.
    pub enabled: bool,
    /// Events sent since the store started; `None` if it does not count them.
    pub published_events: Option<u64>,
    /// Events dropped by its full queue: changes that no subscriber receives.
    pub dropped_events: Option<u64>,
    /// Objects without an event because their keys have no hash: with `emit_object_key` off, every engine's.
    pub skipped_unparsed_keys: Option<u64>,
}

/// The answer is not one of `/kv_events/status`.
#[derive(Debug, Error)]
#[error("read the answer of `/kv_events/status`")]
pub struct StoreStatusError {
    #[source]
    source: serde_json::Error,
}

impl StoreStatus {
    /// Reads `{"enabled", "published_events", ...}`. Only the first is required.
    ///
    /// # Errors
    /// [`StoreStatusError`] if `enabled` is missing.
    pub fn parse(answer: &[u8]) -> Result<Self, StoreStatusError> {
        serde_json::from_slice(answer).map_err(|source| StoreStatusError { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_publishes_nothing_reports_it() {
        let answer = br#"{"enabled":false,"published_batches":0,"published_events":0,"dropped_events":0,"skipped_unparsed_keys":0}"#;
        let expected = StoreStatus {
            enabled: false,
            published_events: Some(0),
            dropped_events: Some(0),
            skipped_unparsed_keys: Some(0),
        };
        assert_eq!(StoreStatus::parse(answer).unwrap(), expected);
    }

    #[test]
    fn later_fields_and_absent_counters_do_not_matter() {
        let answer = br#"{"invalid_event_hashes":1,"enabled":true,"dropped_events":7,"by":{"cpu":1}}"#;
        let expected = StoreStatus {
            enabled: true,
            published_events: None,
            dropped_events: Some(7),
            skipped_unparsed_keys: None,
        };
        assert_eq!(StoreStatus::parse(answer).unwrap(), expected);
    }

    #[test]
    fn an_answer_without_it_is_an_error() {
        for answer in ["", "[]", "{}", r#"{"enabled":"yes"}"#, r#"{"enabled":true"#] {
            assert!(StoreStatus::parse(answer.as_bytes()).is_err(), "{answer}");
        }
    }
}
