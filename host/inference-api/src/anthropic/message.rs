//! A message of a Messages request.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A message.
#[derive(Deserialize)]
pub(super) struct SentMessage<'a> {
    pub(super) role: MessageRole,
    #[serde(borrow)]
    pub(super) content: &'a RawValue,
}

/// Role of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessageRole {
    User,
    Assistant,
    System,
}

impl MessageRole {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// Returns the inside of a JSON string with its escapes; `None` if the value is not a string.
pub(super) fn inner(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}
