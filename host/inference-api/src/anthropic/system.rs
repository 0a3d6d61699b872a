//! System prompts: the leading one, and those between turns.

use serde_json::value::RawValue;

use super::blocks::{self, BlockKind};
use super::message::inner;
use crate::fields::Raw;

/// Start of a line that changes with each request of one client. The engine leaves out blocks that begin with it.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Returns the leading system prompt as the inside of a JSON string: `system`, then the `inline` messages that join
/// it. The outer `None`: it cannot be converted; the inner: it is absent.
pub(super) fn leading<'a>(
    system: Option<Raw<'a>>,
    inline: impl Iterator<Item = &'a RawValue>,
) -> Option<Option<String>> {
    let mut text = String::new();
    let mut is_given = false;
    if let Some(system) = system {
        let value: &RawValue = serde_json::from_str(system.get()).ok()?;
        match inner(value) {
            // The header is left out of blocks only.
            Some(plain) => {
                text.push_str(plain);
                is_given = !plain.is_empty();
            }
            None => is_given = append_blocks(value, &mut text)?,
        }
    }
    for message in inline {
        if let Some(part) = self::inline(message)? {
            text.push_str(&part);
            is_given = true;
        }
    }
    Some(is_given.then_some(text))
}

/// Returns the text of a system message as the inside of a JSON string. The outer `None`: it cannot be converted; the
/// inner: it has no text.
pub(super) fn inline(content: &RawValue) -> Option<Option<String>> {
    if let Some(plain) = inner(content) {
        let is_left_out = plain.is_empty() || is_billing_header(plain);
        return Some((!is_left_out).then(|| plain.to_owned()));
    }
    let mut text = String::new();
    let has_text = append_blocks(content, &mut text)?;
    Some(has_text.then_some(text))
}

/// Appends the texts of a list of blocks. Returns `true` if there were any.
fn append_blocks(list: &RawValue, text: &mut String) -> Option<bool> {
    let mut any = false;
    for block in blocks::read(list)? {
        // These change the tools of the conversation.
        if matches!(block.kind, BlockKind::ToolAddition | BlockKind::ToolRemoval) {
            return None;
        }
        let given = block
            .text()?
            .filter(|text| block.kind == BlockKind::Text && !text.is_empty());
        if let Some(part) = given.filter(|part| !is_billing_header(part)) {
            text.push_str(part);
            any = true;
        }
    }
    Some(any)
}

/// Returns `true` if the text begins with the header. Clients write it without escapes.
fn is_billing_header(text: &str) -> bool {
    text.starts_with(BILLING_HEADER)
}
