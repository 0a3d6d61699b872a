//! Content blocks in requests.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::inner;

/// A block of a message's content. Fields of other kinds of blocks are absent.
#[derive(Deserialize)]
pub(super) struct ContentBlock<'a> {
    #[serde(rename = "type")]
    pub(super) kind: BlockKind,
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
    #[serde(default, borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) source: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) tool_use_id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) content: Option<&'a RawValue>,
}

/// Kinds accepted by vLLM; it refuses requests with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BlockKind {
    Text,
    Image,
    ToolUse,
    ToolResult,
    ToolReference,
    Thinking,
    RedactedThinking,
    ToolAddition,
    ToolRemoval,
}

/// Reads a list of blocks; `None` for other values.
pub(super) fn read(list: &RawValue) -> Option<Vec<ContentBlock<'_>>> {
    serde_json::from_str(list.get()).ok()
}

impl<'a> ContentBlock<'a> {
    /// Returns `text` as the inside of a JSON string. The outer `None`: it is not text; the inner: it is absent.
    pub(super) fn text(&self) -> Option<Option<&'a str>> {
        optional(self.text)
    }

    /// Returns `thinking` in the same form.
    pub(super) fn thinking(&self) -> Option<Option<&'a str>> {
        optional(self.thinking)
    }
}

/// Returns the inside of an optional string.
pub(super) fn optional(raw: Option<&RawValue>) -> Option<Option<&str>> {
    match raw {
        None => Some(None),
        Some(raw) => inner(raw).map(Some),
    }
}
