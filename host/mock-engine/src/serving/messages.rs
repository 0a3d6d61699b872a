//! Anthropic's Messages API, after vLLM 0.32: conversion of requests to chats, and events.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::context::Context;
use crate::serving::inference_request::{InferenceRequest, resolve};
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{AnswerSoFar, Envelope};
use crate::tokens::{Ending, Message, chat_segments, segment_tokens};

/// Fields of the prompt.
#[derive(Debug, Deserialize)]
struct MessagesPrompt {
    system: Option<MessageContent>,
    messages: Vec<MessageTurn>,
}

#[derive(Debug, Deserialize)]
struct MessageTurn {
    role: String,
    content: MessageContent,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Blocks(Vec<MessageBlock>),
}

/// Only text is kept: the mock ignores images and calls no tools.
#[derive(Debug, Deserialize)]
struct MessageBlock {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    content: Option<Box<MessageContent>>,
}

#[derive(Debug, Deserialize)]
struct CountBody {
    model: Option<String>,
}

impl MessageContent {
    /// Returns its texts, joined by `between`.
    fn text(&self, between: &str) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => {
                let texts = blocks.iter().filter_map(|block| block.text.as_deref());
                texts.collect::<Vec<_>>().join(between)
            }
        }
    }
}

impl MessageTurn {
    /// Tool results become messages of their own before the rest.
    fn into_messages(self) -> Vec<Message> {
        let message = |role: &str, content| Message {
            role: role.to_owned(),
            content,
        };
        let mut messages = Vec::new();
        if let MessageContent::Blocks(blocks) = &self.content {
            let results = blocks.iter().filter(|block| block.kind == "tool_result");
            messages.extend(results.map(|result| {
                let content = result.content.as_ref();
                message(
                    "tool",
                    content.map_or_else(String::new, |content| content.text("\n")),
                )
            }));
            let is_over = self.role == "user" && blocks.iter().all(|block| block.text.is_none());
            if is_over {
                return messages;
            }
        }
        messages.push(message(&self.role, self.content.text("")));
        messages
    }
}

/// Returns the prompt's tokens.
fn prompt(body: &[u8]) -> Result<Vec<u32>, Refusal> {
    let body: MessagesPrompt = read(body)?;
    let system = body
        .system
        .map(|system| system.text(""))
        .filter(|text| !text.is_empty());
    let system = system.map(|content| Message {
        role: "system".to_owned(),
        content,
    });
    let turns = body.messages.into_iter().flat_map(MessageTurn::into_messages);
    let messages: Vec<Message> = system.into_iter().chain(turns).collect();
    if messages.is_empty() {
        return Err(Refusal::bad("messages", "messages must not be empty".to_owned()));
    }
    let segments = chat_segments(&messages, Ending::AssistantTurn);
    Ok(segment_tokens(&segments).map(|(id, _)| id).collect())
}

impl InferenceRequest {
    /// Parses a body of `/v1/messages`.
    pub(crate) fn messages(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        Self::of_message(context, body, prompt(body)?)
    }
}

/// Answers a body of `/v1/messages/count_tokens`.
pub(crate) fn count(context: &Context, body: &[u8]) -> Result<Value, Refusal> {
    let head: CountBody = read(body)?;
    resolve(context, head.model)?;
    let tokens = prompt(body)?.len();
    Ok(json!({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}))
}

impl Envelope {
    /// Returns the answer to a request without streaming.
    pub(super) fn message(&self, answer: &AnswerSoFar, kv_transfer_params: &Value) -> Value {
        let choice = answer.choice(0);
        let mut answer = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": [{"type": "text", "text": choice.text}], "stop_reason": stop_reason(choice.finish),
            "usage": self.message_usage(answer, true),
        });
        if !kv_transfer_params.is_null() {
            answer["kv_transfer_params"] = kv_transfer_params.clone();
        }
        answer
    }

    /// Returns the usage: the prompt's tokens without those of the cache, which are known at the end.
    fn message_usage(&self, answer: &AnswerSoFar, is_last: bool) -> Value {
        if !is_last {
            return json!({"input_tokens": self.prompt_tokens, "output_tokens": answer.tokens()});
        }
        let read = answer.cached();
        let created = self.cacheable_tokens.saturating_sub(read);
        json!({
            "input_tokens": self.prompt_tokens.saturating_sub(read + created), "output_tokens": answer.tokens(),
            "cache_creation_input_tokens": created, "cache_read_input_tokens": read,
        })
    }

    /// Returns the events of one token, which `answer` contains already.
    pub(super) fn message_events(
        &self,
        answer: &AnswerSoFar,
        output: &Output,
        first: bool,
        out: &mut VecDeque<Bytes>,
    ) {
        if first {
            let begun = AnswerSoFar::new(1, 1);
            let message = json!({
                "id": self.id, "type": "message", "role": "assistant", "content": [], "model": self.model,
                "stop_reason": null, "stop_sequence": null, "usage": self.message_usage(&begun, false),
            });
            out.push_back(event("message_start", json!({"message": message})));
            let block = json!({"type": "text", "text": ""});
            out.push_back(event(
                "content_block_start",
                json!({"index": 0, "content_block": block}),
            ));
        }
        let delta = json!({"type": "text_delta", "text": output.text});
        out.push_back(event("content_block_delta", json!({"index": 0, "delta": delta})));
        if output.finish.is_some() {
            out.push_back(event("content_block_stop", json!({"index": 0})));
            let delta = json!({"stop_reason": stop_reason(output.finish), "stop_sequence": null});
            let usage = self.message_usage(answer, true);
            out.push_back(event("message_delta", json!({"delta": delta, "usage": usage})));
            out.push_back(event("message_stop", json!({})));
        }
    }
}

fn stop_reason(finish: Option<Finish>) -> &'static str {
    match finish {
        Some(Finish::Length) => "max_tokens",
        _ => "end_turn",
    }
}

/// Returns an event with that name and type.
pub(super) fn event(name: &str, mut data: Value) -> Bytes {
    data["type"] = name.into();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
