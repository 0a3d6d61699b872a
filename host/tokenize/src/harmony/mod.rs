//! Harmony, the format of gpt-oss: vLLM renders its chats by code of its own (`harmony_utils.py` of vLLM 0.32, with the
//! package `oss-harmony` 0.0.11), whatever chat template the folder has.
//!
//! A chat becomes a system message, a developer message of the leading instructions and the tools (`tools.rs`,
//! `schema.rs`), and the messages (`conversion.rs`). Reasoning before the last answer is omitted. The format's library
//! tokenizes each text by itself and never takes a special token from it (`text.rs`).

mod conversion;
mod schema;
mod text;
mod tools;

use std::time::SystemTime;

use minijinja::value::Value;
use tokenizers::Tokenizer;

use self::conversion::{HarmonyKind, HarmonyMessage};
use self::text::{HarmonyText, Marker};
use crate::boundary::BoundaryFinder;
use crate::chat::{Chat, ChatError, optional};
use crate::fast_path::FastPath;
use crate::message;
use crate::rendered::Rendered;
use crate::strftime::strftime;
use crate::template::seconds;

/// Heading of instructions.
const INSTRUCTIONS: &str = "# Instructions\n\n";

/// Returns `true` if the model's tokenizer can tokenize chats in Harmony: it has the markers of the format, and its
/// added tokens cannot begin in one text and end in another.
pub(crate) fn is_possible(tokenizer: &Tokenizer, boundaries: &BoundaryFinder, fast_path: &FastPath) -> bool {
    text::is_possible(tokenizer, boundaries) && fast_path.takes_every_text()
}

/// Renders a chat. `now` is the date in the system message: vLLM takes the day from its clock, in the time zone of its
/// container.
pub(crate) fn render(fast_path: &FastPath, chat: &Chat<'_>, now: SystemTime) -> Result<Rendered, ChatError> {
    let given = message::parse(chat.messages).map_err(ChatError::Json)?;
    let given = given.ok_or(ChatError::Unsupported("messages that are no list"))?;
    let (instructions, messages) = conversion::messages(&given)?;
    let tools = optional(chat.tools)?;
    let tools = (!tools.is_none()).then_some(tools);
    let mut text = HarmonyText::new(fast_path, chat);
    system(&mut text, chat, tools.is_some(), now)?;
    if tools.is_some() || instructions.as_deref().is_some_and(|text| !text.is_empty()) {
        text.open("developer")?;
        text.literal(|out| {
            if let Some(instructions) = &instructions {
                let behind = if tools.is_some() { "\n\n" } else { "" };
                out.push_all(&[INSTRUCTIONS, instructions, behind])?;
            }
            tools.as_ref().map_or(Ok(()), |tools| tools::write(out, tools))
        })?;
        text.marker(Marker::End)?;
    }
    for message in &messages {
        one_message(&mut text, message)?;
    }
    text.marker(Marker::Start)?;
    text.word("assistant")?;
    Ok(text.into_rendered())
}

fn system(
    text: &mut HarmonyText<'_>,
    chat: &Chat<'_>,
    has_tools: bool,
    now: SystemTime,
) -> Result<(), ChatError> {
    let effort = optional(chat.reasoning_effort)?;
    let effort = match effort.as_str() {
        Some(effort @ ("low" | "medium" | "high")) => effort,
        None if effort.is_none() => "medium",
        _ => return Err(ChatError::Unsupported("an effort that Harmony does not have")),
    };
    let date = strftime("%Y-%m-%d", seconds(now)).ok_or(ChatError::Unsupported("a date without a form"))?;
    text.open("system")?;
    text.literal(|out| {
        out.push("You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n")?;
        for part in ["Current date: ", &date, "\n\nReasoning: ", effort] {
            out.push(part)?;
        }
        out.push(
            "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.",
        )?;
        if has_tools {
            out.push("\nCalls to these tools must go to the commentary channel: 'functions'.")?;
        }
        Ok(())
    })?;
    text.marker(Marker::End)
}

fn one_message(text: &mut HarmonyText<'_>, message: &HarmonyMessage) -> Result<(), ChatError> {
    match &message.kind {
        HarmonyKind::Question => text.open("user")?,
        HarmonyKind::Developer => text.open("developer")?,
        HarmonyKind::Channel(channel) => {
            text.marker(Marker::Start)?;
            text.word("assistant")?;
            text.marker(Marker::Channel)?;
            text.word(channel)?;
            text.marker(Marker::Message)?;
        }
        HarmonyKind::Call(name) => {
            text.marker(Marker::Start)?;
            let name = name.as_str().unwrap_or_default();
            // vLLM encodes this text again, and refuses special tokens in it.
            if !text.literal(|out| out.push_all(&["assistant to=functions.", name]))? {
                return Err(ChatError::Unsupported(
                    "a called function with a special token in its name",
                ));
            }
            text.marker(Marker::Channel)?;
            text.word("commentary json")?;
            text.marker(Marker::Message)?;
        }
        HarmonyKind::Output(name) => {
            text.marker(Marker::Start)?;
            let name = name.as_ref().and_then(|name| name.as_str());
            text.literal(|out| out.push_all(&["functions.", name.unwrap_or_default()]))?;
            text.marker(Marker::Channel)?;
            text.word("commentary to=assistant")?;
            text.marker(Marker::Message)?;
        }
    }
    let texts: Vec<&str> = message.texts.iter().filter_map(Value::as_str).collect();
    match message.kind {
        HarmonyKind::Question | HarmonyKind::Channel(_) => text.parts(&texts)?,
        HarmonyKind::Developer => {
            text.literal(|out| {
                out.push(INSTRUCTIONS)?;
                out.push_all(&texts)
            })?;
        }
        HarmonyKind::Call(_) | HarmonyKind::Output(_) => {
            text.literal(|out| out.push_all(&texts))?;
        }
    }
    text.marker(match message.kind {
        HarmonyKind::Call(_) => Marker::Call,
        _ => Marker::End,
    })
}
