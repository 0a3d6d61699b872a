//! Lines of host calls: the questions of a policy and the answers it received.

use routing::{About, Answer, Noted, Question, Role, StateRefusal, Tier, WorkerId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One host call with its result, by the names of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all_fields = "kebab-case")]
#[expect(
    missing_docs,
    reason = "the fields are the contract's, and listed in host/docs/policies/decision-log.md"
)]
pub enum NoteLine {
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

impl NoteLine {
    /// Formats a host call. Returns `None` if the answer does not match the question.
    pub(crate) fn of(noted: &Noted) -> Option<Self> {
        Some(match (noted.question.clone(), noted.answer.clone()) {
            (Question::Worker(id), Answer::Worker(about)) => Self::Worker {
                worker: id.0,
                about: about.map(|about| AboutLine {
                    name: about.name,
                    role: RoleName(about.role),
                    labels: about.labels,
                }),
            },
            (Question::Matched(tier), Answer::Tokens(tokens)) => Self::Matched {
                tier: TierName(tier),
                tokens,
            },
            (Question::Holders(tokens), Answer::Count(holders)) => Self::Holders { tokens, holders },
            (Question::Header(name), Answer::Text(value)) => Self::Header { name, value },
            (Question::Model, Answer::Text(value)) => Self::Model { value },
            (Question::Path, Answer::Text(value)) => Self::Path { value },
            (Question::StateGet(key), Answer::Bytes(value)) => Self::Get {
                key,
                value: value.map(Bytes),
            },
            (Question::StateSet(key, value), Answer::Written(written)) => Self::Set {
                key,
                value: Bytes(value),
                refused: written.err().map(RefusalName),
            },
            (Question::StateAdd(key, by), Answer::Sum(sum)) => Self::Add {
                key,
                by,
                sum: sum.ok(),
                refused: sum.err().map(RefusalName),
            },
            (Question::StateDelete(key), Answer::Nothing) => Self::Delete { key },
            (Question::SessionRecall, Answer::Row(row)) => Self::Recall { row },
            (Question::SessionRemember(row, ttl_ms), Answer::Nothing) => Self::Remember { row, ttl_ms },
            (Question::SessionForget, Answer::Nothing) => Self::Forget,
            (Question::Ahead(most), Answer::Tokens(ahead)) => Self::Ahead { most, ahead },
            _ => return None,
        })
    }

    /// Returns the host call.
    #[must_use]
    pub fn noted(&self) -> Noted {
        let (question, answer) = match self.clone() {
            Self::Worker { worker, about } => {
                let about = about.map(|about| About {
                    name: about.name,
                    role: about.role.0,
                    labels: about.labels,
                });
                (Question::Worker(WorkerId(worker)), Answer::Worker(about))
            }
            Self::Matched { tier, tokens } => (Question::Matched(tier.0), Answer::Tokens(tokens)),
            Self::Holders { tokens, holders } => (Question::Holders(tokens), Answer::Count(holders)),
            Self::Header { name, value } => (Question::Header(name), Answer::Text(value)),
            Self::Model { value } => (Question::Model, Answer::Text(value)),
            Self::Path { value } => (Question::Path, Answer::Text(value)),
            Self::Get { key, value } => {
                let value = value.map(|bytes| bytes.0);
                (Question::StateGet(key), Answer::Bytes(value))
            }
            Self::Set { key, value, refused } => {
                let written = refused.map_or(Ok(()), |refused| Err(refused.0));
                (Question::StateSet(key, value.0), Answer::Written(written))
            }
            Self::Add {
                key,
                by,
                sum,
                refused,
            } => {
                let sum = refused.map_or(Ok(sum.unwrap_or_default()), |refused| Err(refused.0));
                (Question::StateAdd(key, by), Answer::Sum(sum))
            }
            Self::Delete { key } => (Question::StateDelete(key), Answer::Nothing),
            Self::Recall { row } => (Question::SessionRecall, Answer::Row(row)),
            Self::Remember { row, ttl_ms } => (Question::SessionRemember(row, ttl_ms), Answer::Nothing),
            Self::Forget => (Question::SessionForget, Answer::Nothing),
            Self::Ahead { most, ahead } => (Question::Ahead(most), Answer::Tokens(ahead)),
        };
        Noted { question, answer }
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
    fn check(question: Question, answer: Answer, json: &str) {
        let noted = Noted { question, answer };
        let line = NoteLine::of(&noted).unwrap();
        assert_eq!(serde_json::to_string(&line).unwrap(), json);
        let read: NoteLine = serde_json::from_str(json).unwrap();
        assert_eq!(read.noted(), noted);
    }

    #[test]
    fn every_question_reads_back_with_its_answer() {
        let about = About {
            name: "gpu-1".to_owned(),
            role: Role::Prefill,
            labels: vec![("zone".to_owned(), "a".to_owned())],
        };
        check(
            Question::Worker(WorkerId(7)),
            Answer::Worker(Some(about)),
            r#"{"ask":"workers.describe","worker":7,"about":{"name":"gpu-1","role":"prefill","labels":[["zone","a"]]}}"#,
        );
        check(
            Question::Matched(Tier::Shared),
            Answer::Tokens(vec![16, 0]),
            r#"{"ask":"index.matched","tier":"shared","tokens":[16,0]}"#,
        );
        check(
            Question::Holders(32),
            Answer::Count(2),
            r#"{"ask":"index.holders","tokens":32,"holders":2}"#,
        );
        check(
            Question::Header("x-tenant".to_owned()),
            Answer::Text(None),
            r#"{"ask":"inspect.header","name":"x-tenant","value":null}"#,
        );
        check(
            Question::Model,
            Answer::Text(Some("llama".to_owned())),
            r#"{"ask":"inspect.model","value":"llama"}"#,
        );
        check(
            Question::Path,
            Answer::Text(Some("/v1".to_owned())),
            r#"{"ask":"inspect.path","value":"/v1"}"#,
        );
    }

    #[test]
    fn state_reads_back_byte_for_byte() {
        let key = || "k".to_owned();
        check(
            Question::StateGet(key()),
            Answer::Bytes(Some(vec![0, 255, 16])),
            r#"{"ask":"state.get","key":"k","value":"00ff10"}"#,
        );
        check(
            Question::StateSet(key(), vec![]),
            Answer::Written(Err(StateRefusal::Full)),
            r#"{"ask":"state.set","key":"k","value":"","refused":"full"}"#,
        );
        check(
            Question::StateAdd(key(), -1),
            Answer::Sum(Ok(i64::MIN)),
            r#"{"ask":"state.add","key":"k","by":-1,"sum":-9223372036854775808,"refused":null}"#,
        );
        check(
            Question::StateAdd(key(), 1),
            Answer::Sum(Err(StateRefusal::NotACounter)),
            r#"{"ask":"state.add","key":"k","by":1,"sum":null,"refused":"not-a-counter"}"#,
        );
        check(
            Question::StateDelete(key()),
            Answer::Nothing,
            r#"{"ask":"state.delete","key":"k"}"#,
        );
        assert!(serde_json::from_str::<Bytes>("\"0g\"").is_err());
        assert!(serde_json::from_str::<Bytes>("\"0ff\"").is_err());
    }

    #[test]
    fn sessions_read_back() {
        check(
            Question::SessionRecall,
            Answer::Row(Some(3)),
            r#"{"ask":"sessions.recall","row":3}"#,
        );
        check(
            Question::SessionRemember(3, 60_000),
            Answer::Nothing,
            r#"{"ask":"sessions.remember","row":3,"ttl-ms":60000}"#,
        );
        check(
            Question::SessionForget,
            Answer::Nothing,
            r#"{"ask":"sessions.forget"}"#,
        );
    }
}
