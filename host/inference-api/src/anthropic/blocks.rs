//! Content blocks as they are sent.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::inner;

/// One block of a message's content. Fields of other kinds of blocks are absent.
#[derive(Deserialize)]
pub(super) struct Block<'a> {
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

/// The kinds that vLLM takes; it refuses requests with others.
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

/// Reads a list of blocks; none where it is something else.
pub(super) fn read(list: &RawValue) -> Option<Vec<Block<'_>>> {
    serde_json::from_str(list.get()).ok()
}

impl<'a> Block<'a> {
    /// `text`, as the inside of a JSON string. The outer none: it is no text; the inner: there is none.
    pub(super) fn text(&self) -> Option<Option<&'a str>> {
        optional(self.text)
    }

    /// `thinking`, likewise.
    pub(super) fn thinking(&self) -> Option<Option<&'a str>> {
        optional(self.thinking)
    }
}

/// The inside of a string that may be absent.
pub(super) fn optional(raw: Option<&RawValue>) -> Option<Option<&str>> {
    match raw {
        None => Some(None),
        Some(raw) => inner(raw).map(Some),
    }
}
