//! The worker's `/tokenize`, as vLLM has it: the engine's own chat template and tokeniser, so that its answer
//! is what its KV-cache events are made of.
//!
//! Requests are put together from slices of the client's body; the text is copied, never parsed.

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::endpoint::Endpoint;
use crate::peek::{Peek, Prompt};

/// What a worker answered to `/tokenize`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tokenized {
    /// The prompt's token ids.
    pub tokens: Vec<u32>,
}

/// The answer is not one of `/tokenize`.
#[derive(Debug, Error)]
#[error("read the answer of `/tokenize`")]
pub struct TokenizeError {
    #[source]
    source: serde_json::Error,
}

impl Tokenized {
    /// Reads `{"count", "max_model_len", "tokens", ...}`; only the tokens are of use.
    ///
    /// # Errors
    /// [`TokenizeError`] when there is no list of token ids.
    pub fn parse(answer: &[u8]) -> Result<Self, TokenizeError> {
        serde_json::from_slice(answer).map_err(|source| TokenizeError { source })
    }
}

impl Peek<'_> {
    /// The `/tokenize` body that yields this prompt's tokens; none where no such body exists (batches, token
    /// ids, forms not known here).
    #[must_use]
    pub fn tokenize_body(&self) -> Option<Vec<u8>> {
        let fields = &self.fields;
        let mut body = Object::default();
        if let Some(model) = fields.model {
            body.field("model", &[model.get()]);
        }
        match self.prompt.single() {
            Prompt::Messages(messages) => {
                body.field("messages", &[messages.get()]);
                for (name, raw) in [
                    ("tools", fields.tools),
                    ("add_generation_prompt", fields.add_generation_prompt),
                    ("continue_final_message", fields.continue_final_message),
                    ("add_special_tokens", fields.add_special_tokens),
                    ("chat_template", fields.chat_template),
                    ("chat_template_kwargs", fields.chat_template_kwargs),
                    ("mm_processor_kwargs", fields.mm_processor_kwargs),
                ] {
                    if let Some(raw) = raw {
                        body.field(name, &[raw.get()]);
                    }
                }
            }
            Prompt::Text(input) if self.endpoint == Endpoint::Responses => {
                body.field("messages", &as_messages(self, input)?);
            }
            Prompt::Text(prompt) => {
                body.field("prompt", &[prompt.get()]);
                if let Some(raw) = fields.add_special_tokens {
                    body.field("add_special_tokens", &[raw.get()]);
                }
            }
            Prompt::TokenIds(_) | Prompt::Batch(_) | Prompt::Other => return None,
        }
        Some(body.finish())
    }
}

/// A plain-text call of the Responses API is rendered as a chat of one user message after the instructions.
/// With tools or an earlier response there is more to it than the body shows.
fn as_messages<'a>(peek: &Peek<'a>, input: &'a RawValue) -> Option<[&'a str; 6]> {
    let fields = &peek.fields;
    if fields.previous_response_id.is_some() || fields.tools.is_some() {
        return None;
    }
    let system = match fields.instructions {
        Some(text) if text.get().starts_with('"') => [r#"[{"role":"system","content":"#, text.get(), r#"},"#],
        Some(_) => return None,
        None => ["[", "", ""],
    };
    let [open, text, close] = system;
    Some([
        open,
        text,
        close,
        r#"{"role":"user","content":"#,
        input.get(),
        "}]",
    ])
}

/// A JSON object put together from values that are JSON already.
#[derive(Default)]
struct Object(Vec<u8>);

impl Object {
    fn field(&mut self, name: &str, value: &[&str]) {
        let opening: &[u8] = if self.0.is_empty() { b"{\"" } else { b",\"" };
        self.0.extend_from_slice(opening);
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        for part in value {
            self.0.extend_from_slice(part.as_bytes());
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peek::peek;

    #[track_caller]
    fn check(endpoint: Endpoint, body: &str, expected: Option<&str>) {
        let built = peek(endpoint, body.as_bytes()).unwrap().tokenize_body();
        if let Some(built) = &built {
            serde_json::from_slice::<serde_json::Value>(built).expect("valid JSON");
        }
        assert_eq!(
            built.map(|bytes| String::from_utf8(bytes).unwrap()).as_deref(),
            expected
        );
    }

    #[test]
    fn a_chat_keeps_its_text_and_what_its_template_reads() {
        check(
            Endpoint::ChatCompletions,
            r#"{"temperature":0,"messages":[ {"role":"user","content":"h\u00e9 \"x\""} ],"tools":[],"model":"m",
                "chat_template_kwargs":{"thinking":true},"add_generation_prompt":false}"#,
            Some(
                r#"{"model":"m","messages":[ {"role":"user","content":"h\u00e9 \"x\""} ],"tools":[],"add_generation_prompt":false,"chat_template_kwargs":{"thinking":true}}"#,
            ),
        );
    }

    #[test]
    fn a_text_prompt_is_passed_alone_or_from_a_batch_of_one() {
        let expected = Some(r#"{"model":"m","prompt":"hi"}"#);
        check(Endpoint::Completions, r#"{"model":"m","prompt":"hi"}"#, expected);
        check(
            Endpoint::Completions,
            r#"{"model":"m","prompt":["hi"]}"#,
            expected,
        );
        check(Endpoint::Embeddings, r#"{"model":"m","input":"hi"}"#, expected);
        check(
            Endpoint::Completions,
            r#"{"prompt":"hi"}"#,
            Some(r#"{"prompt":"hi"}"#),
        );
    }

    #[test]
    fn a_plain_response_call_is_a_chat_of_one_message() {
        check(
            Endpoint::Responses,
            r#"{"model":"m","input":"hi","instructions":"be kind"}"#,
            Some(
                r#"{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]}"#,
            ),
        );
        check(
            Endpoint::Responses,
            r#"{"input":"hi"}"#,
            Some(r#"{"messages":[{"role":"user","content":"hi"}]}"#),
        );
        check(
            Endpoint::Responses,
            r#"{"input":"hi","previous_response_id":"r1"}"#,
            None,
        );
    }

    #[test]
    fn there_is_no_body_for_ids_batches_and_the_unknown() {
        check(Endpoint::Completions, r#"{"prompt":[1,2]}"#, None);
        check(Endpoint::Completions, r#"{"prompt":["a","b"]}"#, None);
        check(Endpoint::Responses, r#"{"input":[{}]}"#, None);
        check(Endpoint::ChatCompletions, r#"{}"#, None);
    }

    #[test]
    fn an_answer_is_its_tokens() {
        let answer = br#"{"count":2,"max_model_len":512,"tokens":[2046,84],"token_strs":null}"#;
        assert_eq!(Tokenized::parse(answer).unwrap().tokens, [2046, 84]);
        for bad in [&b"{}"[..], b"", br#"{"tokens":[-1]}"#, br#"{"tokens":null}"#] {
            assert!(Tokenized::parse(bad).is_err());
        }
    }
}
