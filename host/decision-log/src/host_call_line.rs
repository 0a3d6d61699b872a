//! Lines of host calls: a policy's calls and their results.

use routing::{About, HostCall, HostResult, RecordedCall, Role, StateRefusal, Tier, WorkerId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One host call with its result, by the names of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all_fields = "kebab-case")]
#[expect(
    missing_docs,
    reason = "the fields are the contract's, and listed in host/docs/policies/decision-log.md"
)]
pub enum HostCallLine {
    /// `workers.describe`
    #[serde(rename = "workers.describe")]
    Worker { worker: u32, about: Option<AboutLine> },
    /// `index.matched`
    #[serde(rename = "index.matched")]
    Matched { tier: TierName, tokens: Vec<u32> },
    /// `index.holders`
    #[serde(rename = "index.holders")]
    Holders { tokens: u32, holders: u32 },
    /// `inspect.header`
    #[serde(rename = "inspect.header")]
    Header { name: String, value: Option<String> },
    /// `inspect.model`
    #[serde(rename = "inspect.model")]
    Model { value: Option<String> },
    /// `inspect.path`
    #[serde(rename = "inspect.path")]
    Path { value: Option<String> },
    /// `state.get`
    #[serde(rename = "state.get")]
    Get { key: String, value: Option<Bytes> },
    /// `state.set`
    #[serde(rename = "state.set")]
    Set {
        key: String,
        value: Bytes,
        refused: Option<RefusalName>,
    },
    /// `state.add`; `sum` is absent if it was refused.
    #[serde(rename = "state.add")]
    Add {
        key: String,
        by: i64,
        sum: Option<i64>,
        refused: Option<RefusalName>,
    },
    /// `state.delete`
    #[serde(rename = "state.delete")]
    Delete { key: String },
    /// `sessions.recall`
    #[serde(rename = "sessions.recall")]
    Recall { row: Option<u32> },
    /// `sessions.remember`
    #[serde(rename = "sessions.remember")]
    Remember { row: u32, ttl_ms: u32 },
    /// `sessions.forget`
    #[serde(rename = "sessions.forget")]
    Forget,
    /// `queue.ahead`
    #[serde(rename = "queue.ahead")]
    Ahead { most: Vec<u32>, ahead: Vec<u32> },
}

/// Description of a worker that a policy received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutLine {
    /// Name.
    pub name: String,
    /// Role.
    pub role: RoleName,
    /// Labels: key and value.
    pub labels: Vec<(String, String)>,
}

/// Bytes, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

/// [`Role`]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "Role")]
enum RoleNames {
    Mixed,
    Prefill,
    Decode,
}

/// A worker's role by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleName(#[serde(with = "RoleNames")] pub Role);

/// [`Tier`]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "Tier")]
enum TierNames {
    Device,
    Host,
    Disk,
    Shared,
}

/// A tier by name; the contract's slowest one is `shared`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TierName(#[serde(with = "TierNames")] pub Tier);

/// [`StateRefusal`]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", remote = "StateRefusal")]
enum RefusalNames {
    KeyTooLong,
    ValueTooLong,
    Full,
    NotACounter,
}

/// Reason for refusing a write to the state, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefusalName(#[serde(with = "RefusalNames")] pub StateRefusal);

impl HostCallLine {
    /// Formats a host call. Returns `None` if the result does not match the call.
    pub(crate) fn of(recorded: &RecordedCall) -> Option<Self> {
        Some(match (recorded.call.clone(), recorded.result.clone()) {
            (HostCall::Worker(id), HostResult::Worker(about)) => Self::Worker {
                worker: id.0,
                about: about.map(|about| AboutLine {
                    name: about.name,
                    role: RoleName(about.role),
                    labels: about.labels,
                }),
            },
            (HostCall::Matched(tier), HostResult::Tokens(tokens)) => Self::Matched {
                tier: TierName(tier),
                tokens,
            },
            (HostCall::Holders(tokens), HostResult::Count(holders)) => Self::Holders { tokens, holders },
            (HostCall::Header(name), HostResult::Text(value)) => Self::Header { name, value },
            (HostCall::Model, HostResult::Text(value)) => Self::Model { value },
            (HostCall::Path, HostResult::Text(value)) => Self::Path { value },
            (HostCall::StateGet(key), HostResult::Bytes(value)) => Self::Get {
                key,
                value: value.map(Bytes),
            },
            (HostCall::StateSet(key, value), HostResult::Written(written)) => Self::Set {
                key,
                value: Bytes(value),
                refused: written.err().map(RefusalName),
            },
            (HostCall::StateAdd(key, by), HostResult::Sum(sum)) => Self::Add {
                key,
                by,
                sum: sum.ok(),
                refused: sum.err().map(RefusalName),
            },
            (HostCall::StateDelete(key), HostResult::Nothing) => Self::Delete { key },
            (HostCall::SessionRecall, HostResult::Row(row)) => Self::Recall { row },
            (HostCall::SessionRemember(row, ttl_ms), HostResult::Nothing) => Self::Remember { row, ttl_ms },
            (HostCall::SessionForget, HostResult::Nothing) => Self::Forget,
            (HostCall::Ahead(most), HostResult::Tokens(ahead)) => Self::Ahead { most, ahead },
            _ => return None,
        })
    }

    /// Returns the host call.
    #[must_use]
    pub fn recorded_call(&self) -> RecordedCall {
        let (call, result) = match self.clone() {
            Self::Worker { worker, about } => {
                let about = about.map(|about| About {
                    name: about.name,
                    role: about.role.0,
                    labels: about.labels,
                });
                (HostCall::Worker(WorkerId(worker)), HostResult::Worker(about))
            }
            Self::Matched { tier, tokens } => (HostCall::Matched(tier.0), HostResult::Tokens(tokens)),
            Self::Holders { tokens, holders } => (HostCall::Holders(tokens), HostResult::Count(holders)),
            Self::Header { name, value } => (HostCall::Header(name), HostResult::Text(value)),
            Self::Model { value } => (HostCall::Model, HostResult::Text(value)),
            Self::Path { value } => (HostCall::Path, HostResult::Text(value)),
            Self::Get { key, value } => {
                let value = value.map(|bytes| bytes.0);
                (HostCall::StateGet(key), HostResult::Bytes(value))
            }
            Self::Set { key, value, refused } => {
                let written = refused.map_or(Ok(()), |refused| Err(refused.0));
                (HostCall::StateSet(key, value.0), HostResult::Written(written))
            }
            Self::Add {
                key,
                by,
                sum,
                refused,
            } => {
                let sum = refused.map_or(Ok(sum.unwrap_or_default()), |refused| Err(refused.0));
                (HostCall::StateAdd(key, by), HostResult::Sum(sum))
            }
            Self::Delete { key } => (HostCall::StateDelete(key), HostResult::Nothing),
            Self::Recall { row } => (HostCall::SessionRecall, HostResult::Row(row)),
            Self::Remember { row, ttl_ms } => (HostCall::SessionRemember(row, ttl_ms), HostResult::Nothing),
            Self::Forget => (HostCall::SessionForget, HostResult::Nothing),
            Self::Ahead { most, ahead } => (HostCall::Ahead(most), HostResult::Tokens(ahead)),
        };
        RecordedCall { call, result }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digit = |digit: u8| char::from_digit(digit.into(), 16).expect("four bits make a digit");
        serializer.serialize_str(&digits.map(digit).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let odd = || serde::de::Error::custom("bytes are not in hexadecimal");
        let byte = |digits: &[u8]| match digits {
            [high, low] => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
            }
            _ => None,
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(call: HostCall, result: HostResult, json: &str) {
        let recorded = RecordedCall { call, result };
        let line = HostCallLine::of(&recorded).unwrap();
        assert_eq!(serde_json::to_string(&line).unwrap(), json);
        let read: HostCallLine = serde_json::from_str(json).unwrap();
        assert_eq!(read.recorded_call(), recorded);
    }

    #[test]
    fn every_question_reads_back_with_its_answer() {
        let about = About {
            name: "gpu-1".to_owned(),
            role: Role::Prefill,
            labels: vec![("zone".to_owned(), "a".to_owned())],
        };
        check(
            HostCall::Worker(WorkerId(7)),
            HostResult::Worker(Some(about)),
            r#"{"ask":"workers.describe","worker":7,"about":{"name":"gpu-1","role":"prefill","labels":[["zone","a"]]}}"#,
        );
        check(
            HostCall::Matched(Tier::Shared),
            HostResult::Tokens(vec![16, 0]),
            r#"{"ask":"index.matched","tier":"shared","tokens":[16,0]}"#,
        );
        check(
            HostCall::Holders(32),
            HostResult::Count(2),
            r#"{"ask":"index.holders","tokens":32,"holders":2}"#,
        );
        check(
            HostCall::Header("x-tenant".to_owned()),
            HostResult::Text(None),
            r#"{"ask":"inspect.header","name":"x-tenant","value":null}"#,
        );
        check(
            HostCall::Model,
            HostResult::Text(Some("llama".to_owned())),
            r#"{"ask":"inspect.model","value":"llama"}"#,
        );
        check(
            HostCall::Path,
            HostResult::Text(Some("/v1".to_owned())),
            r#"{"ask":"inspect.path","value":"/v1"}"#,
        );
    }

    #[test]
    fn state_reads_back_byte_for_byte() {
        let key = || "k".to_owned();
        check(
            HostCall::StateGet(key()),
            HostResult::Bytes(Some(vec![0, 255, 16])),
            r#"{"ask":"state.get","key":"k","value":"00ff10"}"#,
        );
        check(
            HostCall::StateSet(key(), vec![]),
            HostResult::Written(Err(StateRefusal::Full)),
            r#"{"ask":"state.set","key":"k","value":"","refused":"full"}"#,
        );
        check(
            HostCall::StateAdd(key(), -1),
            HostResult::Sum(Ok(i64::MIN)),
            r#"{"ask":"state.add","key":"k","by":-1,"sum":-9223372036854775808,"refused":null}"#,
        );
        check(
            HostCall::StateAdd(key(), 1),
            HostResult::Sum(Err(StateRefusal::NotACounter)),
            r#"{"ask":"state.add","key":"k","by":1,"sum":null,"refused":"not-a-counter"}"#,
        );
        check(
            HostCall::StateDelete(key()),
            HostResult::Nothing,
            r#"{"ask":"state.delete","key":"k"}"#,
        );
        assert!(serde_json::from_str::<Bytes>("\"0g\"").is_err());
        assert!(serde_json::from_str::<Bytes>("\"0ff\"").is_err());
    }

    #[test]
    fn sessions_read_back() {
        check(
            HostCall::SessionRecall,
            HostResult::Row(Some(3)),
            r#"{"ask":"sessions.recall","row":3}"#,
        );
        check(
            HostCall::SessionRemember(3, 60_000),
            HostResult::Nothing,
            r#"{"ask":"sessions.remember","row":3,"ttl-ms":60000}"#,
        );
        check(
            HostCall::SessionForget,
            HostResult::Nothing,
            r#"{"ask":"sessions.forget"}"#,
        );
    }
}
