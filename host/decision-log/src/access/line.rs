//! Line of the access log. `host/docs/operation/access-log.md` describes every field.

use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};

use super::timestamp;
use crate::text::{MAX_ID, cut};

/// Line of one request. Unknown fields are left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessLine {
    /// End of the request.
    #[serde(with = "timestamp")]
    pub ts: SystemTime,
    /// The request as it came.
    #[serde(flatten)]
    pub request: AccessRequest,
    /// Route and workers.
    #[serde(flatten)]
    pub placement: AccessPlacement,
    /// Policy that decided.
    #[serde(flatten)]
    pub policy: AccessPolicy,
    /// Status and outcome.
    #[serde(flatten)]
    pub end: AccessEnd,
    /// Durations of the stages before the answer.
    #[serde(flatten)]
    pub stages: AccessStages,
    /// Durations of the answer and of the whole request.
    #[serde(flatten)]
    pub times: AccessTimes,
    /// Bytes and tokens.
    #[serde(flatten)]
    pub size: AccessSize,
}

/// Facts of a request as it came.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessRequest {
    /// Request id, truncated.
    pub request_id: Box<str>,
    /// Name of the client whose key was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<str>>,
    /// Method.
    pub method: &'static str,
    /// Path of the endpoint, without a query.
    pub path: Box<str>,
    /// Name of a served model, or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Set if the client requests a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Generation of the configuration.
    pub generation: u64,
    /// Id of the trace, while traces are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Box<str>>,
    /// Set if the trace was sampled at the arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<bool>,
}

/// Route of a request, and the workers it was sent to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessPlacement {
    /// Name of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Box<str>>,
    /// Route, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<usize>,
    /// Arm of the route's experiment; 0 is the control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<usize>,
    /// Worker that answered, or of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<Box<str>>,
    /// Worker that computed the prompt, where that was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_worker: Option<Box<str>>,
    /// Number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// Policy that placed a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessPolicy {
    /// Name in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<str>>,
    /// Id of its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<Box<str>>,
    /// Set if the native fallback decided instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<bool>,
}

/// End of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessEnd {
    /// Status that the client was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Outcome, as `conductor_requests_total` counts it.
    pub outcome: &'static str,
    /// Code of the router's own refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<&'static str>,
    /// Reason for the end of the answer, as the engine states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish: Option<&'static str>,
}

/// Durations of the stages before an answer, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessStages {
    /// Reception of the body.
    #[serde(rename = "read_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub read: Option<Duration>,
    /// Wait in the queue.
    #[serde(rename = "queue_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub queue: Option<Duration>,
    /// Tokenization of the prompt.
    #[serde(rename = "tokens_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub tokens: Option<Duration>,
    /// All decisions.
    #[serde(rename = "decide_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub decide: Option<Duration>,
    /// Last dispatch to a connection.
    #[serde(rename = "connect_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub connect: Option<Duration>,
    /// From then to the head of the worker's answer.
    #[serde(rename = "first_byte_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub first_byte: Option<Duration>,
}

/// Durations of an answer and of the whole request, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessTimes {
    /// Arrival to the first byte of a stream.
    #[serde(rename = "ttft_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub ttft: Option<Duration>,
    /// Mean time of a token after the first.
    #[serde(rename = "tpot_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub tpot: Option<Duration>,
    /// Longest pause within a stream.
    #[serde(rename = "longest_pause_s", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "seconds")]
    pub longest_pause: Option<Duration>,
    /// Arrival to the end.
    #[serde(rename = "duration_s", serialize_with = "whole_seconds")]
    pub duration: Duration,
}

/// Bytes and tokens of a request and its answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AccessSize {
    /// Bytes of the request's body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes of the worker's answer that were passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Tokens of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the prompt that the worker held, by the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_tokens: Option<u64>,
    /// Tokens of the prompt that the engine had cached, as it reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// Serializes a duration in seconds, to the microsecond.
fn whole_seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_micros() as f64 / 1e6)
}

/// Serializes a known duration in seconds. Unknown ones are left out before.
fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    whole_seconds(&time.unwrap_or_default(), serializer)
}

impl AccessRequest {
    /// Returns a request id as the logs have it: truncated, and valid text.
    #[must_use]
    pub fn id_text(id: &[u8]) -> Box<str> {
        let id = String::from_utf8_lossy(id);
        cut(&id, MAX_ID).into()
    }
}

impl AccessLine {
    /// Returns an empty line of a request.
    #[must_use]
    pub fn of(request: AccessRequest) -> Self {
        Self {
            ts: SystemTime::UNIX_EPOCH,
            request,
            placement: AccessPlacement::default(),
            policy: AccessPolicy::default(),
            end: AccessEnd::default(),
            stages: AccessStages::default(),
            times: AccessTimes::default(),
            size: AccessSize::default(),
        }
    }

    /// Returns `true` if the request failed: it did not complete, or its status is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.end.outcome != "complete" || self.end.status.is_some_and(|status| status >= 400)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/operation/access-log.md");

    /// Returns a line in which every field is known.
    fn full() -> AccessLine {
        let time = Some(Duration::from_millis(1_250));
        let text = |text: &str| Some(Box::from(text));
        AccessLine {
            ts: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_452_095_500),
            request: AccessRequest {
                request_id: "req-1".into(),
                client: text("team-a"),
                method: "POST",
                path: "/v1/chat/completions".into(),
                model: text("m"),
                stream: Some(true),
                generation: 3,
                trace_id: text("4bf92f3577b34da6a3ce929d0e0e4736"),
                sampled: Some(true),
            },
            placement: AccessPlacement {
                pool: text("chat"),
                route: Some(1),
                arm: Some(0),
                worker: text("w0"),
                prefill_worker: text("p0"),
                attempts: Some(2),
            },
            policy: AccessPolicy {
                policy: text("cache-aware"),
                policy_version: text("0123456789ab"),
                fallback: Some(false),
            },
            end: AccessEnd {
                status: Some(200),
                outcome: "complete",
                error_code: Some("queue_full"),
                finish: Some("stop"),
            },
            stages: AccessStages {
                read: time,
                connect: time,
                queue: time,
                tokens: time,
                decide: time,
                first_byte: time,
            },
            times: AccessTimes {
                ttft: time,
                tpot: time,
                longest_pause: time,
                duration: Duration::from_micros(2_500_001),
            },
            size: AccessSize {
                bytes_in: Some(1),
                bytes_out: Some(2),
                prompt_tokens: Some(3),
                matched_tokens: Some(4),
                cached_tokens: Some(5),
                output_tokens: Some(6),
            },
        }
    }

    fn keys(json: &str) -> BTreeSet<String> {
        let object: serde_json::Map<_, _> = serde_json::from_str(json).unwrap();
        object.into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_line_is_flat_in_base_units_and_begins_with_its_time() {
        let json = serde_json::to_string(&full()).unwrap();
        let start = r#"{"ts":"2026-11-23T16:41:35.500Z","request_id":"req-1","client":"team-a","#;
        assert!(json.starts_with(start), "{json}");
        for part in [
            r#""queue_s":1.25"#,
            r#""duration_s":2.500001"#,
            r#""fallback":false"#,
        ] {
            assert!(json.contains(part), "{json}");
        }
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let json = serde_json::to_string(&AccessLine::of(AccessRequest::default())).unwrap();
        let expected = [
            "duration_s",
            "generation",
            "method",
            "outcome",
            "path",
            "request_id",
            "ts",
        ];
        assert_eq!(keys(&json), expected.map(String::from).into());
    }

    #[test]
    fn every_field_is_documented_with_its_unit() {
        let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
        let documented = rows
            .filter_map(|row| row.split_once('`'))
            .map(|(name, _)| name.to_owned());
        let json = serde_json::to_string(&full()).unwrap();
        assert_eq!(documented.collect::<BTreeSet<_>>(), keys(&json));
    }

    #[test]
    fn the_example_of_the_page_has_documented_fields_only() {
        let example = DOCUMENT.lines().find(|line| line.starts_with("{\"ts\":"));
        let known = keys(&serde_json::to_string(&full()).unwrap());
        let unknown: Vec<_> = keys(example.unwrap()).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn a_request_that_did_not_complete_or_has_an_error_status_is_an_error() {
        let is_error = |outcome, status| {
            let mut line = full();
            (line.end.outcome, line.end.status) = (outcome, status);
            line.is_error()
        };
        assert!(!is_error("complete", Some(200)));
        assert!(is_error("complete", Some(500)) && is_error("complete", Some(404)));
        assert!(is_error("client-left", Some(200)) && is_error("limited", None));
    }
}
