//! JSON shapes of answers, after recorded answers of vLLM 0.32. Unsupported fields are null, as there.

use serde_json::{Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::audio::Recording;

/// Stands for a real engine's version and configuration.
pub(super) const FINGERPRINT: &str = "vllm-0.32.0-mock";

/// API of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Message,
    /// `/inference/v1/generate`.
    Generate,
    /// `/v1/audio/transcriptions`.
    Transcription,
    /// `/v1/audio/translations`.
    Translation,
}

impl Dialect {
    /// Returns the prefix of ids.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat | Self::Message => "chatcmpl-",
            Self::Completion => "cmpl-",
            Self::Responses => "resp_",
            Self::Generate => "generate-tokens-",
            Self::Transcription => "transcribe-",
            Self::Translation => "translate-",
        }
    }
}

/// Fields repeated in every part of an answer.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) dialect: Dialect,
    pub(crate) id: String,
    pub(crate) model: String,
    /// Unix seconds.
    pub(crate) created: u64,
    pub(crate) prompt_tokens: usize,
    /// Full blocks of the prompts, in tokens.
    pub(crate) cacheable_tokens: usize,
    /// Recording in a form.
    pub(crate) recording: Option<Recording>,
    pub(crate) is_background: bool,
}

/// An answer so far.
#[derive(Debug)]
pub(crate) struct AnswerSoFar {
    /// Choices; at least one.
    choices: Vec<Choice>,
    /// Number of choices per prompt.
    a_prompt: usize,
}

/// A choice so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    pub(super) text: String,
    pub(super) tokens: usize,
    pub(super) finish: Option<Finish>,
    cached: usize,
}

impl AnswerSoFar {
    /// Creates an empty answer for these numbers of prompts and choices.
    pub(crate) fn new(prompts: usize, choices: usize) -> Self {
        Self {
            choices: vec![Choice::default(); prompts * choices],
            a_prompt: choices,
        }
    }

    pub(crate) fn add(&mut self, output: &Output) {
        let choice = &mut self.choices[output.choice as usize];
        choice.text.push_str(&output.text);
        choice.tokens += 1;
        choice.cached = output.cached_tokens as usize;
        choice.finish = output.finish;
    }

    pub(super) fn choice(&self, index: u32) -> &Choice {
        &self.choices[index as usize]
    }

    pub(crate) fn choices(&self) -> usize {
        self.choices.len()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    pub(super) fn tokens(&self) -> usize {
        self.choices.iter().map(|choice| choice.tokens).sum()
    }

    /// Returns the cached tokens, counted once per prompt.
    pub(super) fn cached(&self) -> usize {
        let firsts = self.choices.iter().step_by(self.a_prompt);
        firsts.map(|choice| choice.cached).sum()
    }
}

impl Choice {
    fn finish_reason(&self) -> Option<&'static str> {
        self.finish.map(Finish::as_str)
    }
}

impl Envelope {
    /// Returns the answer to a request without streaming.
    pub(crate) fn whole(&self, answer: &AnswerSoFar, kv_transfer_params: &Value) -> Value {
        let choices = answer.choices.iter().enumerate();
        let (object, choices): (_, Vec<Value>) = match self.dialect {
            Dialect::Chat => (
                "chat.completion",
                choices.map(|(at, choice)| chat_choice(at, choice)).collect(),
            ),
            Dialect::Completion => (
                "text_completion",
                choices
                    .map(|(at, choice)| completion_choice(at, choice))
                    .collect(),
            ),
            Dialect::Responses => return self.response(answer, true),
            Dialect::Message => return self.message(answer, kv_transfer_params),
            Dialect::Generate => return self.generated(answer, kv_transfer_params),
            Dialect::Transcription | Dialect::Translation => return self.transcript(answer),
        };
        let mut answer = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
            "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": self.whole_usage(answer),
            "kv_transfer_params": kv_transfer_params, "ec_transfer_params": null, "metrics": null,
        });
        if self.dialect == Dialect::Chat {
            for field in ["prompt_logprobs", "prompt_token_ids", "prompt_text"] {
                answer[field] = Value::Null;
            }
        }
        answer
    }

    /// Returns a response object, completed or in progress.
    pub(super) fn response(&self, answer: &AnswerSoFar, done: bool) -> Value {
        let cut = answer.choice(0).finish == Some(Finish::Length);
        let status = match (done, cut) {
            (false, _) => "in_progress",
            (true, true) => "incomplete",
            (true, false) => "completed",
        };
        let output = done.then(|| self.response_message(answer));
        let usage = done.then(|| {
            json!({
                "input_tokens": self.prompt_tokens,
                "input_tokens_details": {"cached_tokens": answer.cached()},
                "output_tokens": answer.tokens(),
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.prompt_tokens + answer.tokens(),
            })
        });
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "model": self.model,
            "status": status, "error": null,
            "incomplete_details": (done && cut).then(|| json!({"reason": "max_output_tokens"})),
            "instructions": null, "metadata": null, "output": output.into_iter().collect::<Vec<_>>(),
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "background": self.is_background, "previous_response_id": null, "service_tier": "auto",
            "truncation": "disabled", "usage": usage, "user": null,
        })
    }

    /// Returns a response object that is queued in the background.
    pub(super) fn queued(&self, answer: &AnswerSoFar) -> Value {
        let mut response = self.response(answer, false);
        response["status"] = "queued".into();
        response
    }

    fn response_message(&self, answer: &AnswerSoFar) -> Value {
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant", "status": "completed",
            "content": [{
                "type": "output_text", "text": answer.choice(0).text, "annotations": [], "logprobs": null,
            }],
        })
    }

    pub(super) fn message_id(&self) -> String {
        self.id.replacen("resp_", "msg_", 1)
    }

    pub(super) fn usage(&self, answer: &AnswerSoFar) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + answer.tokens(),
            "completion_tokens": answer.tokens(),
        })
    }

    /// Returns the usage with the values known at the end.
    pub(super) fn last_usage(&self, answer: &AnswerSoFar) -> Value {
        let mut usage = self.usage(answer);
        let mut details = json!({"cached_tokens": answer.cached()});
        if self.dialect == Dialect::Chat {
            let created = self.cacheable_tokens.saturating_sub(answer.cached());
            details["created_cache_tokens"] = created.into();
        }
        usage["prompt_tokens_details"] = details;
        usage
    }

    fn whole_usage(&self, answer: &AnswerSoFar) -> Value {
        let mut usage = self.last_usage(answer);
        let details = &mut usage["prompt_tokens_details"];
        details["multimodal_tokens"] = Value::Null;
        if self.dialect == Dialect::Completion {
            details["created_cache_tokens"] = Value::Null;
        }
        usage["completion_tokens_details"] = Value::Null;
        usage
    }
}

fn chat_choice(index: usize, choice: &Choice) -> Value {
    json!({
        "index": index,
        "message": {
            "role": "assistant", "content": choice.text, "refusal": null, "annotations": null, "audio": null,
            "function_call": null, "reasoning": null,
        },
        "logprobs": null, "finish_reason": choice.finish_reason(), "stop_reason": null, "token_ids": null,
        "routed_experts": null,
    })
}

fn completion_choice(index: usize, choice: &Choice) -> Value {
    json!({
        "index": index, "text": choice.text, "logprobs": null, "finish_reason": choice.finish_reason(),
        "stop_reason": null, "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null,
        "routed_experts": null,
    })
}
