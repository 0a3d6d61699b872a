//! Parsing of inference requests. Unknown fields are ignored, as in vLLM.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::config::MockConfig;
use crate::event::{Adapter, Namespace};
use crate::serving::audio::Recording;
use crate::serving::context::Context;
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;
use crate::serving::shapes::Dialect;
use crate::tokens::{Ending, Message, chat_segments, segment_tokens, tokenize};
use crate::transfer::{Members, PdDialect};

/// vLLM's default of a completion's tokens.
const COMPLETION_TOKENS: u32 = 16;
/// Most answers per request: prompts times `n`.
const MAX_CHOICES: usize = 256;

/// A parsed request.
#[derive(Debug)]
pub(crate) struct InferenceRequest {
    pub(crate) dialect: Dialect,
    /// Model name of the client.
    pub(crate) model: String,
    /// Prompts; at least one.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Answers per prompt, at least one.
    pub(crate) choices: usize,
    /// Maximum tokens, at least one.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) ignore_eos: bool,
    /// The client named stops.
    pub(crate) has_stops: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) namespace: Namespace,
    /// Handshake members for its other leg.
    pub(crate) members: Members,
    /// Recording in a form.
    pub(crate) recording: Option<Recording>,
    /// A response is generated in the background.
    pub(crate) is_background: bool,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    #[serde(default)]
    continuous_usage_stats: bool,
}

/// Fields shared by all bodies.
#[derive(Debug, Deserialize)]
struct SharedFields {
    model: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    ignore_eos: Option<bool>,
    cache_salt: Option<String>,
    n: Option<usize>,
    min_tokens: Option<u32>,
    stop: Option<Value>,
    stop_token_ids: Option<Value>,
    #[serde(flatten)]
    members: Members,
}

#[derive(Debug, Deserialize)]
struct ChatBody {
    messages: Vec<ChatMessage>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    #[serde(flatten)]
    shared: SharedFields,
}

#[derive(Debug, Deserialize)]
struct CompletionBody {
    prompt: Prompt,
    max_tokens: Option<i64>,
    #[serde(flatten)]
    shared: SharedFields,
}

#[derive(Debug, Deserialize)]
struct ResponsesBody {
    input: ResponsesInput,
    instructions: Option<String>,
    max_output_tokens: Option<i64>,
    background: Option<bool>,
    #[serde(flatten)]
    shared: SharedFields,
}

/// A request without its prompt.
#[derive(Debug, Deserialize)]
struct PromptlessBody {
    max_tokens: Option<i64>,
    #[serde(flatten)]
    shared: SharedFields,
}

/// A Messages request without its prompt.
#[derive(Debug, Deserialize)]
struct MessageBody {
    max_tokens: i64,
    #[serde(flatten)]
    shared: SharedFields,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ResponsesInput {
    Text(String),
    Messages(Vec<ChatMessage>),
}

/// A message in a request.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatMessage {
    role: String,
    content: Option<ChatContent>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<ChatPart>),
}

#[derive(Debug, Deserialize)]
struct ChatPart {
    text: Option<String>,
}

/// A prompt in a request: one of them, or a batch.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompt {
    /// Returns the token ids of every prompt of the batch.
    pub(crate) fn into_token_lists(self) -> Vec<Vec<u32>> {
        match self {
            Self::Text(text) => vec![tokenize(&text)],
            Self::Tokens(tokens) => vec![tokens],
            Self::Texts(texts) => texts.iter().map(|text| tokenize(text)).collect(),
            Self::TokenLists(lists) => lists,
        }
    }
}

impl From<ChatMessage> for Message {
    /// Only text is kept: the mock ignores images.
    fn from(message: ChatMessage) -> Self {
        let content = match message.content {
            Some(ChatContent::Text(text)) => text,
            Some(ChatContent::Parts(parts)) => parts.into_iter().filter_map(|part| part.text).collect(),
            None => String::new(),
        };
        Self {
            role: message.role,
            content,
        }
    }
}

/// Returns the model and the adapter of a request; without a model, the one that is served.
pub(crate) fn resolve(
    context: &Context,
    model: Option<String>,
) -> Result<(String, Option<Adapter>), Refusal> {
    let base = &context.config.model;
    let model = model.unwrap_or_else(|| base.clone());
    if model == *base {
        return Ok((model, None));
    }
    let Some(adapter) = context.adapters.find(&model) else {
        return Err(Refusal::unknown_model(&model, &[base]));
    };
    Ok((model, Some(adapter)))
}

impl InferenceRequest {
    /// Parses a body of `/v1/chat/completions`.
    pub(crate) fn chat(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        let body: ChatBody = read(body)?;
        if body.messages.is_empty() {
            return Err(Refusal::bad("messages", "messages must not be empty".to_owned()));
        }
        let requested = body.max_completion_tokens.or(body.max_tokens);
        let prompt = conversation(body.messages);
        Self::new(
            context,
            Dialect::Chat,
            body.shared,
            vec![prompt],
            max_tokens(requested)?,
        )
    }

    /// Parses a body of `/v1/completions`.
    pub(crate) fn completion(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        let body: CompletionBody = read(body)?;
        let prompts = body.prompt.into_token_lists();
        let requested = max_tokens(body.max_tokens)?.unwrap_or(COMPLETION_TOKENS);
        Self::new(
            context,
            Dialect::Completion,
            body.shared,
            prompts,
            Some(requested),
        )
    }

    /// Parses a body of `/v1/responses`.
    pub(crate) fn responses(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        let body: ResponsesBody = read(body)?;
        let text = |role: &str, text| ChatMessage {
            role: role.to_owned(),
            content: Some(ChatContent::Text(text)),
        };
        let mut messages: Vec<_> = body
            .instructions
            .into_iter()
            .map(|content| text("system", content))
            .collect();
        match body.input {
            ResponsesInput::Text(content) => messages.push(text("user", content)),
            ResponsesInput::Messages(given) => messages.extend(given),
        }
        let requested = max_tokens(body.max_output_tokens)?;
        let prompts = vec![conversation(messages)];
        let parsed = Self::new(context, Dialect::Responses, body.shared, prompts, requested)?;
        Ok(Self {
            is_background: body.background.unwrap_or(false),
            ..parsed
        })
    }

    /// Creates a request with that prompt; `rest` has its other fields.
    pub(crate) fn of_prompt(
        context: &Context,
        dialect: Dialect,
        rest: Value,
        prompt: Vec<u32>,
    ) -> Result<Self, Refusal> {
        let body = serde_json::from_value(rest);
        let body: PromptlessBody = body.map_err(|error| Refusal::invalid(&error))?;
        let requested = max_tokens(body.max_tokens)?;
        Self::new(context, dialect, body.shared, vec![prompt], requested)
    }

    /// Parses a body of `/v1/messages` with that prompt.
    pub(crate) fn of_message(context: &Context, body: &[u8], prompt: Vec<u32>) -> Result<Self, Refusal> {
        let body: MessageBody = read(body)?;
        let requested = max_tokens(Some(body.max_tokens))?;
        Self::new(context, Dialect::Message, body.shared, vec![prompt], requested)
    }

    fn new(
        context: &Context,
        dialect: Dialect,
        shared: SharedFields,
        prompts: Vec<Vec<u32>>,
        max_tokens: Option<u32>,
    ) -> Result<Self, Refusal> {
        let (model, adapter) = resolve(context, shared.model)?;
        let choices = match dialect {
            Dialect::Chat | Dialect::Completion | Dialect::Generate => shared.n.unwrap_or(1),
            Dialect::Responses | Dialect::Message | Dialect::Transcription | Dialect::Translation => 1,
        };
        if !(1..=MAX_CHOICES).contains(&prompts.len().saturating_mul(choices)) {
            let message = format!("give 1 to {MAX_CHOICES} prompts times `n`");
            return Err(Refusal::bad("prompt", message));
        }
        if let (Some(min), Some(max)) = (shared.min_tokens, max_tokens)
            && min > max
        {
            return Err(Refusal::too_many_at_least(min, max));
        }
        let stream = shared.stream.unwrap_or(false);
        if shared.stream_options.is_some() && !stream && refuses_idle_stream_options(&context.config) {
            return Err(Refusal::idle_stream_options());
        }
        let options = shared.stream_options.unwrap_or_default();
        Ok(Self {
            dialect,
            model,
            prompts,
            choices,
            max_tokens,
            ignore_eos: shared.ignore_eos.unwrap_or(false),
            has_stops: [shared.stop, shared.stop_token_ids]
                .iter()
                .flatten()
                .any(names_any),
            stream,
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            namespace: Namespace {
                adapter,
                salt: shared.cache_salt.map(Arc::from),
            },
            members: shared.members,
            recording: None,
            is_background: false,
        })
    }
}

/// vLLM refuses it. Without disaggregation the mock ignores it, like other unused fields. With two legs it shows a
/// wrongly built leg.
fn refuses_idle_stream_options(config: &MockConfig) -> bool {
    let vllm = |dialect| dialect != PdDialect::Sglang;
    config.pd.as_ref().is_some_and(|pd| vllm(pd.dialect))
}

fn names_any(stops: &Value) -> bool {
    match stops {
        Value::Array(stops) => !stops.is_empty(),
        stops => !stops.is_null(),
    }
}

/// Returns the prompt of a conversation.
pub(crate) fn conversation(messages: Vec<ChatMessage>) -> Vec<u32> {
    let messages: Vec<Message> = messages.into_iter().map(Message::from).collect();
    let segments = chat_segments(&messages, Ending::AssistantTurn);
    segment_tokens(&segments).map(|(id, _)| id).collect()
}

fn max_tokens(requested: Option<i64>) -> Result<Option<u32>, Refusal> {
    match requested {
        Some(requested) if requested < 1 => Err(Refusal::too_few_tokens(requested)),
        requested => Ok(requested.map(|requested| u32::try_from(requested).unwrap_or(u32::MAX))),
    }
}
