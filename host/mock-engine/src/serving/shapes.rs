//! Answers in their JSON shapes, whole and as server-sent events, after recorded answers of vLLM 0.32. Fields the
//! mock has nothing for are null, as they are there.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::sequence::{Finish, Output};

/// What a real engine would put its version and configuration in.
const FINGERPRINT: &str = "vllm-0.32.0-mock";

/// The API an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// `/v1/responses`.
    Responses,
}

impl Dialect {
    /// What ids start with.
    pub(crate) fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completion => "cmpl-",
            Self::Responses => "resp_",
        }
    }
}

/// What every part of an answer repeats.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) dialect: Dialect,
    pub(crate) id: String,
    pub(crate) model: String,
    /// Unix seconds.
    pub(crate) created: u64,
    pub(crate) prompt_tokens: usize,
    /// Full blocks of the prompt, in tokens.
    pub(crate) cacheable_tokens: usize,
}

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    text: String,
    tokens: usize,
    cached: usize,
    finish: Option<Finish>,
}

impl Said {
    pub(crate) fn add(&mut self, output: &Output) {
        self.text.push_str(&output.text);
        self.tokens += 1;
        self.cached = output.cached_tokens as usize;
        self.finish = output.finish;
    }

    fn finish_reason(&self) -> Option<&'static str> {
        self.finish.map(Finish::as_str)
    }
}

impl Envelope {
    /// The answer to a request that does not stream.
    pub(crate) fn whole(&self, said: &Said) -> Value {
        match self.dialect {
            Dialect::Chat => self.whole_chat(said),
            Dialect::Completion => self.whole_completion(said),
            Dialect::Responses => self.response(said, true),
        }
    }

    fn whole_chat(&self, said: &Said) -> Value {
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0,
                "message": {
                    "role": "assistant", "content": said.text, "refusal": null, "annotations": null,
                    "audio": null, "function_call": null, "reasoning": null,
                },
                "logprobs": null, "finish_reason": said.finish_reason(), "stop_reason": null,
                "token_ids": null, "routed_experts": null,
            }],
            "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": self.whole_usage(said),
            "prompt_logprobs": null, "prompt_token_ids": null, "prompt_text": null,
            "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
        })
    }

    fn whole_completion(&self, said: &Said) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "choices": [{
                "index": 0, "text": said.text, "logprobs": null, "finish_reason": said.finish_reason(),
                "stop_reason": null, "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null,
                "routed_experts": null,
            }],
            "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": self.whole_usage(said),
            "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
        })
    }

    /// A response object, `done` or only begun.
    fn response(&self, said: &Said, done: bool) -> Value {
        let cut = said.finish == Some(Finish::Length);
        let status = match (done, cut) {
            (false, _) => "in_progress",
            (true, true) => "incomplete",
            (true, false) => "completed",
        };
        let output = done.then(|| self.response_message(said));
        let usage = done.then(|| {
            json!({
                "input_tokens": self.prompt_tokens,
                "input_tokens_details": {"cached_tokens": said.cached},
                "output_tokens": said.tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": self.prompt_tokens + said.tokens,
            })
        });
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "model": self.model,
            "status": status, "error": null,
            "incomplete_details": (done && cut).then(|| json!({"reason": "max_output_tokens"})),
            "instructions": null, "metadata": null, "output": output.into_iter().collect::<Vec<_>>(),
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "background": false, "previous_response_id": null, "service_tier": "auto",
            "truncation": "disabled", "usage": usage, "user": null,
        })
    }

    fn response_message(&self, said: &Said) -> Value {
        json!({
            "id": self.message_id(), "type": "message", "role": "assistant", "status": "completed",
            "content": [{
                "type": "output_text", "text": said.text, "annotations": [], "logprobs": null,
            }],
        })
    }

    fn message_id(&self) -> String {
        self.id.replacen("resp_", "msg_", 1)
    }

    fn usage(&self, said: &Said) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + said.tokens,
            "completion_tokens": said.tokens,
        })
    }

    /// With what is known only at the end.
    fn last_usage(&self, said: &Said) -> Value {
        let mut usage = self.usage(said);
        let mut details = json!({"cached_tokens": said.cached});
        if self.dialect == Dialect::Chat {
            let created = self.cacheable_tokens.saturating_sub(said.cached);
            details["created_cache_tokens"] = created.into();
        }
        usage["prompt_tokens_details"] = details;
        usage
    }

    fn whole_usage(&self, said: &Said) -> Value {
        let mut usage = self.last_usage(said);
        let details = &mut usage["prompt_tokens_details"];
        details["multimodal_tokens"] = Value::Null;
        if self.dialect == Dialect::Completion {
            details["created_cache_tokens"] = Value::Null;
        }
        usage["completion_tokens_details"] = Value::Null;
        usage
    }
}

/// An answer as events.
#[derive(Debug)]
pub(crate) struct Stream {
    envelope: Envelope,
    include_usage: bool,
    continuous_usage: bool,
    said: Said,
    /// Events of `/v1/responses` are numbered.
    events: u64,
}

impl Stream {
    pub(crate) fn new(envelope: Envelope, include_usage: bool, continuous_usage: bool) -> Self {
        Self {
            envelope,
            include_usage,
            continuous_usage,
            said: Said::default(),
            events: 0,
        }
    }

    /// Adds the events of one token; the first brings the opening, the last one the end.
    pub(crate) fn token(&mut self, output: &Output, out: &mut VecDeque<Bytes>) {
        let first = self.said.tokens == 0;
        self.said.add(output);
        match self.envelope.dialect {
            Dialect::Responses => self.response_events(output, first, out),
            Dialect::Chat | Dialect::Completion => self.chunks(output, first, out),
        }
    }

    fn chunks(&self, output: &Output, first: bool, out: &mut VecDeque<Bytes>) {
        if first && self.envelope.dialect == Dialect::Chat {
            let mut opening = self.chunk(json!({
                "index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null,
                "finish_reason": null,
            }));
            opening["prompt_token_ids"] = Value::Null;
            opening["prompt_text"] = Value::Null;
            out.push_back(data(&opening));
        }
        let mut chunk = self.chunk(self.choice(output));
        if self.continuous_usage {
            chunk["usage"] = self.envelope.usage(&self.said);
        }
        let last = output.finish.is_some();
        if last && !self.include_usage {
            chunk["system_fingerprint"] = FINGERPRINT.into();
        }
        out.push_back(data(&chunk));
        if last && self.include_usage {
            let mut usage = self.chunk(Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = self.envelope.last_usage(&self.said);
            usage["system_fingerprint"] = FINGERPRINT.into();
            out.push_back(data(&usage));
        }
        if last {
            out.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }

    fn choice(&self, output: &Output) -> Value {
        let finish = output.finish.map(Finish::as_str);
        if self.envelope.dialect == Dialect::Completion {
            return json!({
                "index": 0, "text": output.text, "logprobs": null, "finish_reason": finish,
                "stop_reason": null, "prompt_token_ids": null, "token_ids": null,
            });
        }
        let mut choice = json!({
            "index": 0, "delta": {"content": output.text}, "logprobs": null, "finish_reason": finish,
            "token_ids": null,
        });
        if finish.is_some() {
            choice["stop_reason"] = Value::Null;
        }
        choice
    }

    fn chunk(&self, choice: Value) -> Value {
        let object = match self.envelope.dialect {
            Dialect::Chat => "chat.completion.chunk",
            Dialect::Completion | Dialect::Responses => "text_completion",
        };
        json!({
            "id": self.envelope.id, "object": object, "created": self.envelope.created,
            "model": self.envelope.model, "choices": [choice],
        })
    }

    fn response_events(&mut self, output: &Output, first: bool, out: &mut VecDeque<Bytes>) {
        let item = self.envelope.message_id();
        if first {
            let begun = self.envelope.response(&self.said, false);
            self.event("response.created", json!({"response": begun}), out);
        }
        let place = json!({"item_id": item, "output_index": 0, "content_index": 0});
        let mut delta = place.clone();
        delta["delta"] = output.text.clone().into();
        self.event("response.output_text.delta", delta, out);
        if output.finish.is_some() {
            let mut text = place;
            text["text"] = self.said.text.clone().into();
            self.event("response.output_text.done", text, out);
            let response = self.envelope.response(&self.said, true);
            let name = match self.said.finish {
                Some(Finish::Length) => "response.incomplete",
                _ => "response.completed",
            };
            self.event(name, json!({"response": response}), out);
        }
    }

    fn event(&mut self, name: &str, mut event: Value, out: &mut VecDeque<Bytes>) {
        event["type"] = name.into();
        event["sequence_number"] = self.events.into();
        self.events += 1;
        out.push_back(Bytes::from(format!("event: {name}\ndata: {event}\n\n")));
    }
}

fn data(chunk: &Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}
