//! Turns of a conversation as chat messages.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::blocks::{self, BlockKind, ContentBlock};
use super::image;
use super::message::{MessageRole, SentMessage, inner};

/// Writes the list of chat messages.
#[derive(Default)]
pub(super) struct ChatWriter {
    /// Messages so far, separated by commas.
    out: String,
}

/// A message under construction.
#[derive(Default)]
struct ChatTurn {
    /// Parts of the content, as JSON.
    parts: Vec<String>,
    /// The content, if its only part is this text.
    text: Option<String>,
    /// Tool calls, as JSON.
    calls: Vec<String>,
    /// Reasoning, as the inside of a JSON string.
    reasoning: Option<String>,
}

/// A part of a tool's result.
#[derive(Deserialize)]
struct ResultPart<'a> {
    #[serde(rename = "type", default, borrow)]
    kind: Option<&'a RawValue>,
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
    #[serde(default, borrow)]
    source: Option<&'a RawValue>,
    #[serde(default, borrow)]
    tool_name: Option<&'a RawValue>,
    #[serde(default, borrow)]
    name: Option<&'a RawValue>,
}

/// Contents of a tool's result, sorted by kind.
#[derive(Default)]
struct ToolResult {
    /// Insides of JSON strings.
    texts: Vec<String>,
    images: Vec<String>,
    references: Vec<String>,
}

impl ChatWriter {
    /// Returns the list as JSON.
    pub(super) fn finish(self) -> String {
        format!("[{}]", self.out)
    }

    /// Appends a system message. The text is the inside of a JSON string, here and below.
    pub(super) fn system(&mut self, text: &str) {
        self.push(&format!(r#"{{"role":"system","content":"{text}"}}"#));
    }

    fn push(&mut self, message: &str) {
        if !self.out.is_empty() {
            self.out.push(',');
        }
        self.out.push_str(message);
    }

    /// Appends a turn of the user or the assistant; tool results become messages of their own before it. `None` if it
    /// cannot be converted.
    pub(super) fn message(&mut self, message: &SentMessage<'_>) -> Option<()> {
        let role = message.role;
        let mut turn = ChatTurn::default();
        if inner(message.content).is_some() {
            let name = role.name();
            let content = message.content.get();
            self.push(&format!(r#"{{"role":"{name}","content":{content}}}"#));
            return Some(());
        }
        for block in blocks::read(message.content)? {
            self.block(role, &block, &mut turn)?;
        }
        // A user's turn with only results has no message of its own.
        if role != MessageRole::User || !turn.parts.is_empty() {
            self.push(&turn.finish(role));
        }
        Some(())
    }

    fn block(&mut self, role: MessageRole, block: &ContentBlock<'_>, turn: &mut ChatTurn) -> Option<()> {
        match block.kind {
            BlockKind::Text => {
                if let Some(text) = block.text()?.filter(|text| !text.is_empty()) {
                    turn.text(text);
                }
            }
            BlockKind::Image => {
                if let Some(source) = block.source.filter(|source| !image::is_empty(source)) {
                    turn.part(image_part(&image::url(source)?));
                }
            }
            BlockKind::Thinking => {
                if let Some(thought) = block.thinking()? {
                    turn.reasoning.get_or_insert_default().push_str(thought);
                }
            }
            BlockKind::ToolUse => turn.calls.push(tool_call(block)?),
            BlockKind::ToolResult if role == MessageRole::User => self.tool_result(block)?,
            BlockKind::ToolResult => {
                let content = blocks::optional(block.content)?.unwrap_or_default();
                turn.text(&format!("Tool result: {content}"));
            }
            // References count only inside results.
            BlockKind::RedactedThinking | BlockKind::ToolReference => {}
            BlockKind::ToolAddition | BlockKind::ToolRemoval => return None,
        }
        Some(())
    }

    fn tool_result(&mut self, block: &ContentBlock<'_>) -> Option<()> {
        let result = ToolResult::read(block.content)?;
        let id = blocks::optional(block.tool_use_id)?.unwrap_or_default();
        let text = result.texts.join("\\n");
        self.push(&format!(
            r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#
        ));
        if !result.images.is_empty() {
            let images: Vec<_> = result.images.iter().map(|url| image_part(url)).collect();
            self.push(&format!(r#"{{"role":"user","content":[{}]}}"#, images.join(",")));
        }
        if !result.references.is_empty() {
            let reference = |name| format!(r#"{{"type":"tool_reference","name":"{name}"}}"#);
            let references: Vec<_> = result.references.iter().map(reference).collect();
            let references = references.join(",");
            self.push(&format!(
                r#"{{"role":"tool","tool_call_id":"{id}","content":[{references}]}}"#
            ));
        }
        Some(())
    }
}

impl ChatTurn {
    fn text(&mut self, text: &str) {
        self.text = self.parts.is_empty().then(|| text.to_owned());
        self.parts.push(format!(r#"{{"type":"text","text":"{text}"}}"#));
    }

    fn part(&mut self, part: String) {
        self.text = None;
        self.parts.push(part);
    }

    fn finish(self, role: MessageRole) -> String {
        let mut out = format!(r#"{{"role":"{}""#, role.name());
        if let Some(reasoning) = self.reasoning {
            out.push_str(&format!(r#","reasoning":"{reasoning}""#));
        }
        if !self.calls.is_empty() {
            out.push_str(&format!(r#","tool_calls":[{}]"#, self.calls.join(",")));
        }
        if let Some(text) = self.text {
            out.push_str(&format!(r#","content":"{text}""#));
        } else if !self.parts.is_empty() {
            out.push_str(&format!(r#","content":[{}]"#, self.parts.join(",")));
        }
        out.push('}');
        out
    }
}

impl ToolResult {
    fn read(content: Option<&RawValue>) -> Option<Self> {
        let mut result = Self::default();
        let Some(content) = content else {
            return Some(result);
        };
        if let Some(text) = inner(content) {
            result.texts.push(text.to_owned());
            return Some(result);
        }
        let parts: Vec<ResultPart<'_>> = serde_json::from_str(content.get()).ok()?;
        for part in &parts {
            result.add(part)?;
        }
        Some(result)
    }

    fn add(&mut self, part: &ResultPart<'_>) -> Option<()> {
        match part.kind.map_or("", RawValue::get) {
            "\"text\"" => self
                .texts
                .push(blocks::optional(part.text)?.unwrap_or_default().to_owned()),
            "\"image\"" => {
                let url = match part.source {
                    Some(source) => image::url(source)?,
                    None => "data:image/jpeg;base64,".to_owned(),
                };
                self.images.extend((!url.is_empty()).then_some(url));
            }
            "\"tool_reference\"" => {
                let named = |raw| blocks::optional(raw).map(|name| name.filter(|name| !name.is_empty()));
                let name = named(part.tool_name)?.or(named(part.name)?);
                self.references.extend(name.map(str::to_owned));
            }
            _ => {}
        }
        Some(())
    }
}

fn image_part(url: &str) -> String {
    format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#)
}

/// Returns a tool call. The engine names one without an id by its clock.
fn tool_call(block: &ContentBlock<'_>) -> Option<String> {
    let id = blocks::optional(block.id)?.filter(|id| !id.is_empty())?;
    let name = blocks::optional(block.name)?.unwrap_or_default();
    let input = block.input.map_or("{}", RawValue::get);
    if !input.starts_with('{') {
        return None;
    }
    let arguments = serde_json::to_string(input).ok()?;
    Some(format!(
        r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#
    ))
}
