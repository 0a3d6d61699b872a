//! Request inspection: reads the fields that routing needs in one pass, without copying text.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::digits::DigitWord;
use crate::endpoint::{Endpoint, ModelField, PromptField};
use crate::fields::{Fields, Raw, ReadBody};
use crate::form::{Form, FormError, FormSize};
use crate::nesting::is_deeper_than;
use crate::query::{self, QueryError};
use crate::sampling::{self, Sampling};

/// Byte order mark in UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// No inference endpoint can accept the body.
#[derive(Debug, Error)]
pub enum BodyError {
    /// Not JSON.
    #[error("read the request body as JSON")]
    Invalid {
        /// Fault with line and column; never quotes the prompt.
        #[source]
        source: serde_json::Error,
    },
    /// JSON, but not an object.
    #[error("find a JSON object in the request body")]
    NotAnObject,
    /// Not a valid form.
    #[error("read the request body as a form")]
    Form {
        /// Fault.
        #[source]
        source: FormError,
    },
    /// Not a query with one model.
    #[error("read the query of the URL")]
    Query {
        /// Fault.
        #[source]
        source: QueryError,
    },
}

/// Fields of a body that routing may need. Fields of an unexpected type count as absent: the engine refuses them with
/// its own messages.
#[derive(Debug)]
pub struct Peek<'a> {
    /// `model`; empty if absent.
    pub model: Cow<'a, str>,
    /// `stream`; false if absent.
    pub stream: bool,
    /// `max_completion_tokens`, else `max_tokens`, else `max_output_tokens`.
    pub max_tokens: Option<u64>,
    /// `priority`; lower is sooner.
    pub priority: Option<i64>,
    /// Prompt.
    pub prompt: Prompt<'a>,
    pub(crate) endpoint: Endpoint,
    pub(crate) fields: Box<Fields<'a>>,
    body: &'a [u8],
    /// Nesting depth of the body, if reading determined it.
    depth: Option<usize>,
    /// Sizes of a form.
    form: Option<FormSize>,
    /// Positions of the elements of `messages` in its value.
    messages: Vec<Range<usize>>,
}

/// Location of the prompt in the body, unparsed.
#[derive(Debug, Clone, Copy)]
pub enum Prompt<'a> {
    /// One prompt as an array of token ids.
    TokenIds(Raw<'a>),
    /// One prompt as a JSON string.
    Text(Raw<'a>),
    /// A conversation.
    Messages(Raw<'a>),
    /// An array of prompts, each text or token ids.
    Batch(Raw<'a>),
    /// None, or in an unknown form.
    Other,
}

/// Removes a leading byte order mark; engines skip it.
#[must_use]
pub fn without_bom(body: Bytes) -> Bytes {
    if body.starts_with(BOM) {
        return body.slice(BOM.len()..);
    }
    body
}

/// Reads the fields from a body of the endpoint's kind. `content_type` is the header, if there is exactly one.
///
/// # Errors
/// [`BodyError`] if the body is of another kind.
pub fn read_body<'a>(
    endpoint: Endpoint,
    content_type: Option<&[u8]>,
    body: &'a [u8],
) -> Result<Peek<'a>, BodyError> {
    let form = || {
        let source = content_type.ok_or(FormError::NoBoundary);
        source.and_then(|content_type| Form::read(content_type, body))
    };
    match endpoint.spec().model {
        ModelField::Json => peek(endpoint, body),
        ModelField::Query => Ok(peek_form(endpoint, &Form::default(), body)),
        ModelField::Form => match form() {
            Ok(form) => Ok(peek_form(endpoint, &form, body)),
            Err(source) => Err(BodyError::Form { source }),
        },
        ModelField::Any => Ok(match form() {
            Ok(form) => peek_form(endpoint, &form, body),
            Err(_) => peek(endpoint, body.strip_prefix(BOM).unwrap_or(body))
                .unwrap_or_else(|_| peek_form(endpoint, &Form::default(), body)),
        }),
    }
}

/// Reads the fields from the query of a URL, for an endpoint without a body.
///
/// # Errors
/// [`BodyError::Query`] if the query does not name a model unambiguously.
pub fn read_query(endpoint: Endpoint, query: &str) -> Result<Peek<'static>, BodyError> {
    let model = query::model(query).map_err(|source| BodyError::Query { source })?;
    Ok(Peek {
        model: model.unwrap_or_default().into_owned().into(),
        ..peek_form(endpoint, &Form::default(), b"")
    })
}

/// Reads the fields from a form instead of a JSON object.
fn peek_form<'a>(endpoint: Endpoint, form: &Form<'a>, body: &'a [u8]) -> Peek<'a> {
    Peek {
        model: form.model.unwrap_or_default().into(),
        stream: form.stream && endpoint.spec().streams,
        max_tokens: None,
        priority: None,
        prompt: Prompt::Other,
        endpoint,
        fields: Box::default(),
        body,
        depth: Some(0),
        form: Some(form.size),
        messages: Vec::new(),
    }
}

/// Reads the fields from a JSON object. Other fields are skipped, whatever they contain. Of several fields with one
/// name the last counts, as in engines.
///
/// # Errors
/// [`BodyError`] if the body is not a JSON object.
pub fn peek(endpoint: Endpoint, body: &[u8]) -> Result<Peek<'_>, BodyError> {
    let ReadBody {
        fields,
        depth,
        messages,
    } = match ReadBody::read(body) {
        Ok(read) => read,
        Err(source) if source.is_data() && !body.trim_ascii_start().starts_with(b"{") => {
            return Err(BodyError::NotAnObject);
        }
        Err(source) => return Err(BodyError::Invalid { source }),
    };
    let limit = [
        fields.max_completion_tokens,
        fields.max_tokens,
        fields.max_output_tokens,
    ];
    let spec = endpoint.spec();
    let mut model = fields.model.and_then(text);
    let mut max_tokens = limit.into_iter().flatten().find_map(|raw| raw.get().parse().ok());
    if spec.prompt == PromptField::Tokens {
        // SGLang's name of an adapter; the request does not name the base model.
        model = model.or_else(|| fields.lora_path.and_then(text));
        max_tokens = max_tokens.or_else(|| Sampling::of(&fields).max_tokens());
    }
    Ok(Peek {
        model: model.unwrap_or_default(),
        stream: spec.streams && fields.stream.is_some_and(|raw| raw.get() == "true"),
        max_tokens,
        priority: fields.priority.and_then(|raw| raw.get().parse().ok()),
        prompt: prompt(endpoint, &fields),
        endpoint,
        fields,
        body,
        depth,
        form: None,
        messages,
    })
}

impl<'a> Peek<'a> {
    /// Returns `true` if arrays and objects of the body are nested deeper than `limit`.
    #[must_use]
    pub fn is_deeper_than(&self, limit: usize) -> bool {
        self.depth
            .map_or_else(|| is_deeper_than(self.body, limit), |depth| depth > limit)
    }

    /// Returns the sizes of a form's parts; `None` for JSON.
    #[must_use]
    pub fn form_size(&self) -> Option<FormSize> {
        self.form
    }

    /// Returns the position of each message in the text of `messages`. Empty if there are none, or the body is written
    /// in a form that only the slow reader accepts.
    #[must_use]
    pub fn message_positions(&self) -> &[Range<usize>] {
        &self.messages
    }

    /// Returns the number of requested answers: `n`, else 1.
    #[must_use]
    pub fn answers(&self) -> u64 {
        let count = self.fields.n.and_then(|raw| raw.get().parse().ok());
        count.unwrap_or(1).max(1)
    }

    /// Returns `true` if `priority` is not 0, the engines' default.
    #[must_use]
    pub fn sets_priority(&self) -> bool {
        self.fields.priority.is_some_and(|raw| raw.get() != "0")
    }

    /// Returns the field with a data-parallel rank: `routed_dp_rank` (SGLang), or `data_parallel_rank`, its former
    /// name.
    #[must_use]
    pub fn rank_field(&self) -> Option<&'static str> {
        let routed = self.fields.routed_dp_rank.map(|_| "routed_dp_rank");
        routed.or_else(|| self.fields.data_parallel_rank.map(|_| "data_parallel_rank"))
    }

    /// Returns the adapters in `lora_path` beside `model` (SGLang): one, or one per prompt of a batch.
    ///
    /// # Errors
    /// Returns an error if it is neither text nor a list of texts and nulls.
    pub fn adapters(&self) -> Result<Vec<Cow<'a, str>>, serde_json::Error> {
        let Some(raw) = self.fields.lora_path else {
            return Ok(Vec::new());
        };
        if let Some(name) = text(raw) {
            return Ok(vec![name]);
        }
        let names: Vec<Option<String>> = serde_json::from_str(raw.get())?;
        Ok(names.into_iter().flatten().map(Cow::Owned).collect())
    }

    /// Returns a member of a hand-over in the body, at any place where engines read one: a leg that no router has
    /// placed.
    #[must_use]
    pub fn forged_member(&self) -> Option<&'static str> {
        sampling::handover_member(&self.fields)
    }

    /// Returns `user`, if it is text; `metadata.user_id` in Anthropic's Messages API.
    #[must_use]
    pub fn user(&self) -> Option<Cow<'a, str>> {
        if self.endpoint.spec().prompt == PromptField::AnthropicMessages {
            let metadata: Metadata<'a> = serde_json::from_str(self.fields.metadata?.get()).ok()?;
            return text(Raw::known(metadata.user_id?.get()));
        }
        self.fields.user.and_then(text)
    }

    /// Returns `previous_response_id`, if it is text.
    #[must_use]
    pub fn previous_response_id(&self) -> Option<Cow<'a, str>> {
        self.fields.previous_response_id.and_then(text)
    }

    /// Returns `prompt_cache_key`, if it is text.
    #[must_use]
    pub fn prompt_cache_key(&self) -> Option<Cow<'a, str>> {
        self.fields.prompt_cache_key.and_then(text)
    }

    /// Returns `cache_salt`, if it is text. Prompts with different salts share no cache.
    #[must_use]
    pub fn cache_salt(&self) -> Option<Cow<'a, str>> {
        self.fields.cache_salt.and_then(text)
    }

    /// Returns SGLang's `extra_key`, if it is text. Prompts with different keys share no cache.
    #[must_use]
    pub fn extra_key(&self) -> Option<Cow<'a, str>> {
        self.fields.extra_key.and_then(text)
    }

    /// Returns the prompt's token ids, if the client sent ids of one prompt or of a batch of one.
    #[must_use]
    pub fn token_ids(&self) -> Option<Vec<u32>> {
        read_ids(self.id_list()?)
    }

    /// Returns the endpoint of the body.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Returns the JSON list of the prompt's token ids without its brackets, for [`read_ids`]. `None` also if the
    /// engine may cut it off: the end of the list then is the beginning of the prompt.
    #[must_use]
    pub fn id_list(&self) -> Option<&'a str> {
        // -1 is the longest prompt of the model.
        if self
            .fields
            .truncate_prompt_tokens
            .is_some_and(|most| most.get() != "-1")
        {
            return None;
        }
        match self.prompt.single() {
            Prompt::TokenIds(raw) => raw.get().strip_prefix('[')?.strip_suffix(']'),
            _ => None,
        }
    }
}

impl Prompt<'_> {
    /// Returns the prompt of a batch of one; other prompts unchanged.
    pub(crate) fn single(self) -> Self {
        let Prompt::Batch(raw) = self else {
            return self;
        };
        match serde_json::from_str::<[&RawValue; 1]>(raw.get()) {
            Ok([only]) => classify(Raw::known(only.get())),
            Err(_) => self,
        }
    }
}

fn prompt<'a>(endpoint: Endpoint, fields: &Fields<'a>) -> Prompt<'a> {
    match endpoint.spec().prompt {
        PromptField::Messages | PromptField::AnthropicMessages => {
            fields.messages.map_or(Prompt::Other, Prompt::Messages)
        }
        PromptField::Prompt => fields.prompt.map_or(Prompt::Other, classify),
        PromptField::Input => match (fields.input, fields.messages) {
            (Some(input), _) => classify(input),
            // vLLM's embeddings take chats too.
            (None, Some(messages)) => Prompt::Messages(messages),
            (None, None) => Prompt::Other,
        },
        // An array of items is a conversation in another dialect, which `/tokenize` does not support.
        PromptField::Response => match fields.input {
            Some(input) if input.get().starts_with('"') => Prompt::Text(input),
            _ => Prompt::Other,
        },
        PromptField::Tokens => {
            let given = fields.token_ids.or(fields.input_ids).or(fields.text);
            given.map_or(Prompt::Other, classify)
        }
        PromptField::Any => match (fields.messages, fields.prompt.or(fields.input)) {
            (Some(messages), _) => Prompt::Messages(messages),
            (None, given) => given.map_or(Prompt::Other, classify),
        },
        PromptField::Untokenized => Prompt::Other,
    }
}

/// Classifies by the first two tokens alone: the array may be long.
pub(crate) fn classify(raw: Raw<'_>) -> Prompt<'_> {
    let text = raw.get();
    if text.starts_with('"') {
        return Prompt::Text(raw);
    }
    let Some(inner) = text.strip_prefix('[') else {
        return Prompt::Other;
    };
    match inner.trim_ascii_start().as_bytes().first() {
        Some(b'0'..=b'9') => Prompt::TokenIds(raw),
        Some(b'"' | b'[') => Prompt::Batch(raw),
        _ => Prompt::Other,
    }
}

/// Digits of the largest id.
const LONGEST_ID: usize = 10;

/// Reads the ids of a JSON array without its brackets, or of a part between two commas. Returns `None` if an element is
/// no id. Several times as fast as a general parser, which must have accepted the array.
#[must_use]
pub fn read_ids(list: &str) -> Option<Vec<u32>> {
    let mut rest = list.as_bytes();
    // Most ids have at least four digits.
    let mut ids = Vec::with_capacity(rest.len() / 4);
    loop {
        // The usual form: eight bytes have the whole id and its comma.
        while let Some(eight) = DigitWord::of(rest)
            && let (1..8, Some(b',')) = (eight.digits, rest.get(eight.digits as usize))
        {
            ids.push(eight.number() as u32);
            rest = &rest[eight.digits as usize + 1..];
            rest = rest.strip_prefix(b" ").unwrap_or(rest);
        }
        rest = rest.trim_ascii_start();
        ids.push(u32::try_from(take_digits(&mut rest)?).ok()?);
        match rest.trim_ascii_start() {
            [] => return Some(ids),
            [b',', after @ ..] => rest = after,
            _ => return None,
        }
    }
}

/// Reads a number with at most as many digits as an id.
fn take_digits(text: &mut &[u8]) -> Option<u64> {
    let digits = text.iter().take(LONGEST_ID + 1);
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = text
        .split_at_checked(digits)
        .filter(|_| (1..=LONGEST_ID).contains(&digits))?;
    *text = after;
    let value = |number: u64, digit: &u8| number * 10 + u64::from(digit - b'0');
    Some(number.iter().fold(0, value))
}

/// `metadata` of a Messages request.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
}

/// Borrowed if the string has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

#[cfg(test)]
#[path = "peek_tests.rs"]
mod tests;
