//! `/tokenize`: the ids that the engine would compute. `/detokenize`: a text with these ids.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::serving::context::Context;
use crate::serving::inference_request::{ChatMessage, resolve};
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;
use crate::tokens::{Ending, Message, Segment, chat_segments, segment_tokens};
use crate::vocabulary::text_of;

#[derive(Debug, Deserialize)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<ChatMessage>>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct TokensBody {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// Returns the text of a body's tokens.
pub(crate) fn detokenize(context: &Context, body: &[u8]) -> Result<Value, Refusal> {
    let body: TokensBody = read(body)?;
    resolve(context, body.model)?;
    let text = text_of(&body.tokens);
    let text = text.ok_or_else(|| Refusal::bad("tokens", "a token is out of the vocabulary".to_owned()))?;
    Ok(json!({"prompt": text}))
}

/// Answers a body.
pub(crate) fn tokenize(context: &Context, body: &[u8]) -> Result<Value, Refusal> {
    let body: TokenizeBody = read(body)?;
    resolve(context, body.model)?;
    let segments = match (body.messages, body.prompt) {
        (Some(messages), _) => {
            let ending = match (body.continue_final_message, body.add_generation_prompt) {
                (Some(true), _) => Ending::OpenMessage,
                (_, Some(false)) => Ending::Closed,
                _ => Ending::AssistantTurn,
            };
            let messages: Vec<_> = messages.into_iter().map(Message::from).collect();
            chat_segments(&messages, ending)
        }
        (None, Some(prompt)) => vec![Segment::Text(prompt)],
        (None, None) => return Err(Refusal::bad("prompt", "give a prompt or messages".to_owned())),
    };
    let (ids, texts): (Vec<u32>, Vec<&str>) = segment_tokens(&segments).unzip();
    let texts = body.return_token_strs.unwrap_or(false).then_some(texts);
    Ok(json!({
        "count": ids.len(), "max_model_len": context.config.context_limit(), "tokens": ids, "token_strs": texts,
    }))
}
