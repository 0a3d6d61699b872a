//! Requests to a worker's `/tokenize` in vLLM's form: the engine's own chat template and tokenizer give the tokens of
//! its KV-cache events.
//!
//! Requests consist of slices of the client's body; the text is copied, never parsed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::anthropic::MessagesPrompt;
use crate::endpoint::PromptField;
use crate::fields::Raw;
use crate::peek::{Peek, Prompt};
use crate::prompt_parts::effort_of;

/// A worker's answer to `/tokenize`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tokenized {
    /// The prompt's token ids.
    pub tokens: Vec<u32>,
}

/// The answer does not have the tokens of one prompt.
#[derive(Debug, Error)]
#[error("read the answer with a prompt's tokens")]
pub struct TokenizeError {
    #[source]
    source: serde_json::Error,
}

impl Tokenized {
    /// Reads `{"count", "max_model_len", "tokens", ...}`; only the tokens are used.
    ///
    /// # Errors
    /// [`TokenizeError`] if there is no list of token ids.
    pub fn parse(answer: &[u8]) -> Result<Self, TokenizeError> {
        serde_json::from_slice(answer).map_err(|source| TokenizeError { source })
    }

    /// Reads `{"token_ids", ...}`, or a list of one such object.
    ///
    /// # Errors
    /// [`TokenizeError`] if there is no list of token ids, or more than one prompt.
    pub fn parse_rendered(answer: &[u8]) -> Result<Self, TokenizeError> {
        let read = serde_json::from_slice(answer).map_err(|source| TokenizeError { source })?;
        let (RenderAnswer::One(prompt) | RenderAnswer::List([prompt])) = read;
        Ok(Self {
            tokens: prompt.token_ids,
        })
    }
}

/// A worker's answer to `/v1/chat/completions/render` or `/v1/completions/render`: one prompt, or a list of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum RenderAnswer {
    One(RenderedPrompt),
    List([RenderedPrompt; 1]),
}

#[derive(Deserialize)]
struct RenderedPrompt {
    token_ids: Vec<u32>,
}

impl Peek<'_> {
    /// Returns the path that renders the client's own body and answers with the prompt's tokens; `None` for prompts
    /// other than chats and texts.
    #[must_use]
    pub fn render_path(&self) -> Option<&'static str> {
        match (self.prompt.single(), self.endpoint.spec().prompt) {
            (Prompt::Messages(_), PromptField::Messages) => Some("/v1/chat/completions/render"),
            (Prompt::Messages(_), PromptField::AnthropicMessages) => Some("/v1/messages/render"),
            (Prompt::Text(_), PromptField::Prompt) => Some("/v1/completions/render"),
            _ => None,
        }
    }

    /// Returns the `/tokenize` body for this prompt; `None` if there is none (batches, token ids, unknown forms).
    #[must_use]
    pub fn tokenize_body(&self) -> Option<Vec<u8>> {
        let fields = &self.fields;
        let mut body = ObjectWriter::default();
        if let Some(model) = fields.model {
            body.field("model", &[model.get()]);
        }
        match self.prompt.single() {
            Prompt::Messages(_) if self.endpoint.spec().prompt == PromptField::AnthropicMessages => {
                let chat = MessagesPrompt::of(fields)?.chat(None)?;
                body.field("messages", &[&chat.messages]);
                if let Some(tools) = &chat.tools {
                    body.field("tools", &[tools]);
                }
                body.template_arguments(chat.chat_template_kwargs, chat.reasoning_effort, None)?;
            }
            Prompt::Messages(messages) => {
                body.field("messages", &[messages.get()]);
                for (name, raw) in [
                    ("tools", fields.tools),
                    // SGLang reads these three, vLLM skips them.
                    ("tool_choice", fields.tool_choice),
                    ("reasoning", fields.reasoning),
                    ("reasoning_effort", fields.reasoning_effort),
                    ("add_generation_prompt", fields.add_generation_prompt),
                    ("continue_final_message", fields.continue_final_message),
                    ("add_special_tokens", fields.add_special_tokens),
                    ("chat_template", fields.chat_template),
                    ("mm_processor_kwargs", fields.mm_processor_kwargs),
                ] {
                    if let Some(raw) = raw {
                        body.field(name, &[raw.get()]);
                    }
                }
                let arguments = fields.chat_template_kwargs.map(Raw::get);
                let effort = fields.reasoning_effort.map(Raw::get);
                body.template_arguments(arguments, effort, fields.documents.map(Raw::get))?;
            }
            Prompt::Text(input) if self.endpoint.spec().prompt == PromptField::Response => {
                body.field("messages", &as_messages(self, input)?);
                let arguments = fields.chat_template_kwargs.map(Raw::get);
                body.template_arguments(arguments, effort_of(fields.reasoning)?, None)?;
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

/// A plain-text call of the Responses API is rendered as a chat of one user message after the instructions. With tools
/// or an earlier response the chat has more than the body shows.
pub(crate) fn as_messages<'a>(peek: &Peek<'a>, input: Raw<'a>) -> Option<[&'a str; 6]> {
    let fields = &peek.fields;
    if fields.previous_response_id.is_some() || fields.tools.is_some() {
        return None;
    }
    let system = match fields.instructions {
        // The engine leaves an empty text out.
        Some(text) if text.get() == r#""""# => ["[", "", ""],
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

/// A JSON object of values that are JSON already.
#[derive(Default)]
struct ObjectWriter(Vec<u8>);

impl ObjectWriter {
    fn field(&mut self, name: &str, value: &[&str]) {
        let opening: &[u8] = if self.0.is_empty() { b"{\"" } else { b",\"" };
        self.0.extend_from_slice(opening);
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
        for part in value {
            self.0.extend_from_slice(part.as_bytes());
        }
    }

    /// Adds the template's arguments. vLLM's `/tokenize` has no `reasoning_effort` and no `documents`: they are sent
    /// as the arguments that the engine makes of them. `None` if the arguments are not an object.
    fn template_arguments(
        &mut self,
        arguments: Option<&str>,
        effort: Option<&str>,
        documents: Option<&str>,
    ) -> Option<()> {
        if effort.is_none() && documents.is_none() {
            if let Some(arguments) = arguments {
                self.field("chat_template_kwargs", &[arguments]);
            }
            return Some(());
        }
        let arguments = arguments.unwrap_or("{}");
        let names: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(arguments).ok()?;
        let open = arguments.strip_suffix('}')?.trim_ascii_end();
        let mut parts = vec![open];
        let mut add = |name, value| {
            let is_first = names.is_empty() && parts.len() == 1;
            parts.extend([if is_first { "" } else { "," }, name, value]);
        };
        // Of a repeated name the last one counts.
        if let Some(effort) = effort {
            if !names.contains_key("enable_thinking") {
                let thinks = if effort == r#""none""# { "false" } else { "true" };
                add(r#""enable_thinking":"#, thinks);
            }
            add(r#""reasoning_effort":"#, effort);
        }
        if let Some(documents) = documents {
            add(r#""documents":"#, documents);
        }
        parts.push("}");
        self.field("chat_template_kwargs", &parts);
        Some(())
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
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
    fn the_choice_of_tools_and_the_reasoning_are_passed_on() {
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"tools":[],"tool_choice":"none","reasoning":{"effort":"low"}}"#,
            Some(r#"{"messages":[],"tools":[],"tool_choice":"none","reasoning":{"effort":"low"}}"#),
        );
    }

    #[test]
    fn documents_go_as_an_argument_of_the_template() {
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"documents":[{"text":"a"}],"chat_template_kwargs":{"documents":[]}}"#,
            Some(r#"{"messages":[],"chat_template_kwargs":{"documents":[],"documents":[{"text":"a"}]}}"#),
        );
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"documents":[]}"#,
            Some(r#"{"messages":[],"chat_template_kwargs":{"documents":[]}}"#),
        );
    }

    #[test]
    fn an_effort_goes_as_arguments_of_the_template() {
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"reasoning_effort":"low"}"#,
            Some(
                r#"{"messages":[],"reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"low"}}"#,
            ),
        );
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"reasoning_effort":"none","chat_template_kwargs":{"a":1 }}"#,
            Some(
                r#"{"messages":[],"reasoning_effort":"none","chat_template_kwargs":{"a":1,"enable_thinking":false,"reasoning_effort":"none"}}"#,
            ),
        );
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false}}"#,
            Some(
                r#"{"messages":[],"reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"high"}}"#,
            ),
        );
        check(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"reasoning_effort":"high","chat_template_kwargs":[]}"#,
            None,
        );
    }

    #[test]
    fn a_messages_request_is_tokenized_as_its_chat() {
        check(
            Endpoint::Messages,
            r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],
                "tools":[{"name":"f","input_schema":{"type":"object"}}],"output_config":{"effort":"max"},"add_generation_prompt":false}"#,
            Some(
                r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","description":null,"parameters":{"type":"object"}}}],"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"max"}}"#,
            ),
        );
        // Its conversion depends on a template that is unknown here.
        check(
            Endpoint::Messages,
            r#"{"messages":[{"role":"user","content":"a"}],"thinking":{"type":"disabled"}}"#,
            None,
        );
    }

    #[test]
    fn a_body_is_rendered_where_its_api_is() {
        let path = |endpoint, body: &str| peek(endpoint, body.as_bytes()).unwrap().render_path();
        let chat = r#"{"messages":[]}"#;
        assert_eq!(
            path(Endpoint::ChatCompletions, chat),
            Some("/v1/chat/completions/render")
        );
        assert_eq!(path(Endpoint::Messages, chat), Some("/v1/messages/render"));
        assert_eq!(
            path(Endpoint::Completions, r#"{"prompt":"a"}"#),
            Some("/v1/completions/render")
        );
        assert_eq!(path(Endpoint::Embeddings, chat), None);
        assert_eq!(path(Endpoint::Responses, r#"{"input":"a"}"#), None);
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
            r#"{"input":"hi","instructions":"","reasoning":{"effort":"low"},"chat_template_kwargs":{"a":1}}"#,
            Some(
                r#"{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"a":1,"enable_thinking":true,"reasoning_effort":"low"}}"#,
            ),
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
    fn a_rendered_prompt_is_its_tokens() {
        let chat = br#"{"request_id":"chatcmpl-1","token_ids":[2046,84],"sampling_params":{"temperature":1.0},"stream":false}"#;
        assert_eq!(Tokenized::parse_rendered(chat).unwrap().tokens, [2046, 84]);
        let text = br#"[{"request_id":"cmpl-1","token_ids":[1,2,3]}]"#;
        assert_eq!(Tokenized::parse_rendered(text).unwrap().tokens, [1, 2, 3]);
        for bad in [&b"{}"[..], b"[]", br#"[{"token_ids":[1]},{"token_ids":[2]}]"#] {
            assert!(Tokenized::parse_rendered(bad).is_err());
        }
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
