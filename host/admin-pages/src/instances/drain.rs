//! Parser of the body of a request that drains or resumes a worker.

use axum::http::StatusCode;
use serde::Deserialize;

use crate::refusal::Refusal;
use runtime_overrides::{DrainChange, InstanceChange};

/// Longest reason of an operator, in characters.
const LONGEST_REASON: usize = 256;

/// Request body as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    pool: String,
    worker: String,
    reason: Option<String>,
}

/// Parses a request to drain a worker.
pub(super) fn draining(body: &[u8]) -> Result<InstanceChange, Refusal> {
    change(body, true)
}

/// Parses a request to resume a worker.
pub(super) fn resumption(body: &[u8]) -> Result<InstanceChange, Refusal> {
    change(body, false)
}

fn change(body: &[u8], drains: bool) -> Result<InstanceChange, Refusal> {
    let refuse = |why: &str| {
        let message = format!("{why}; send for example {{\"pool\": \"chat\", \"worker\": \"w0\"}}");
        Refusal::new(StatusCode::BAD_REQUEST, "invalid_json", message)
    };
    // A struct is also read from an array of its fields.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(refuse("the body is not a JSON object"));
    }
    let DrainRequest { pool, worker, reason } =
        serde_json::from_slice(body).map_err(|error| refuse(&format!("the body cannot be read: {error}")))?;
    Ok(InstanceChange::Drain(DrainChange {
        pool,
        worker,
        drains,
        reason: reason.map(|reason| reason.chars().take(LONGEST_REASON).collect()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_a_worker_of_a_pool_and_maybe_a_reason() {
        let read = draining(br#"{"pool": "a", "worker": "w0", "reason": "a new driver"}"#);
        let Ok(InstanceChange::Drain(change)) = read else {
            panic!("refused: {read:?}")
        };
        assert!(change.drains && change.reason.as_deref() == Some("a new driver"));
        for bad in [
            "[]",
            "{",
            r#"{"pool": "a"}"#,
            r#"{"pool": "a", "worker": "w", "x": 1}"#,
        ] {
            assert_eq!(
                resumption(bad.as_bytes()).unwrap_err().code,
                "invalid_json",
                "{bad}"
            );
        }
    }
}
