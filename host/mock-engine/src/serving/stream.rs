//! Answers as server-sent events, token by token, after recorded streams of vLLM 0.32.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::kept::KeptResponses;
use crate::serving::messages;
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{AnswerSoFar, Dialect, Envelope, FINGERPRINT};

const DONE: &[u8] = b"data: [DONE]\n\n";

/// An answer as events.
#[derive(Debug)]
pub(crate) struct Stream {
    envelope: Envelope,
    include_usage: bool,
    continuous_usage: bool,
    answer: AnswerSoFar,
    /// Event counter: events of `/v1/responses` are numbered.
    events: u64,
    /// Store of the response.
    kept: Option<Arc<KeptResponses>>,
}

impl Stream {
    /// Creates a stream without tokens yet.
    pub(crate) fn new(
        envelope: Envelope,
        answer: AnswerSoFar,
        include_usage: bool,
        continuous_usage: bool,
    ) -> Self {
        Self {
            envelope,
            include_usage,
            continuous_usage,
            answer,
            events: 0,
            kept: None,
        }
    }

    /// Stores the response.
    pub(crate) fn kept_by(self, kept: Option<Arc<KeptResponses>>) -> Self {
        Self { kept, ..self }
    }

    /// Returns the number of choices.
    pub(crate) fn choices(&self) -> usize {
        self.answer.choices()
    }

    /// Adds the events of one token; the first token adds the opening, the last one the end.
    pub(crate) fn token(&mut self, output: &Output, out: &mut VecDeque<Bytes>) {
        if output.finish == Some(Finish::Error) {
            // The status is already sent, so vLLM reports the error in an event.
            if self.envelope.dialect == Dialect::Message {
                let error = json!({"type": "internal_error", "message": "the engine failed"});
                out.push_back(messages::event("error", json!({"error": error})));
                return;
            }
            out.push_back(data(&Refusal::transfer_failed().error()));
            out.push_back(Bytes::from_static(DONE));
            return;
        }
        let first = self.answer.choice(output.choice).tokens == 0;
        self.answer.add(output);
        match self.envelope.dialect {
            Dialect::Responses => self.response_events(output, first, out),
            Dialect::Message => self.envelope.message_events(&self.answer, output, first, out),
            _ => self.chunks(output, first, out),
        }
    }

    fn chunks(&self, output: &Output, first: bool, out: &mut VecDeque<Bytes>) {
        if first && self.envelope.dialect == Dialect::Chat {
            let mut opening = self.chunk(json!({
                "index": output.choice, "delta": {"role": "assistant", "content": ""}, "logprobs": null,
                "finish_reason": null,
            }));
            opening["prompt_token_ids"] = Value::Null;
            opening["prompt_text"] = Value::Null;
            out.push_back(data(&opening));
        }
        let mut chunk = self.chunk(self.choice(output));
        if self.continuous_usage {
            chunk["usage"] = self.envelope.usage(&self.answer);
        }
        let last = self.answer.is_over();
        if last && !self.include_usage && self.is_fingerprinted() {
            chunk["system_fingerprint"] = FINGERPRINT.into();
        }
        out.push_back(data(&chunk));
        if last && self.include_usage {
            let mut usage = self.chunk(Value::Null);
            usage["choices"] = json!([]);
            usage["usage"] = self.envelope.last_usage(&self.answer);
            if self.is_fingerprinted() {
                usage["system_fingerprint"] = FINGERPRINT.into();
            }
            out.push_back(data(&usage));
        }
        if last {
            out.push_back(Bytes::from_static(DONE));
        }
    }

    fn is_fingerprinted(&self) -> bool {
        matches!(self.envelope.dialect, Dialect::Chat | Dialect::Completion)
    }

    fn choice(&self, output: &Output) -> Value {
        let finish = output.finish.map(Finish::as_str);
        match self.envelope.dialect {
            Dialect::Generate => return self.envelope.generated_choice(output),
            Dialect::Transcription | Dialect::Translation => return self.envelope.transcript_chunk(output),
            _ => {}
        }
        if self.envelope.dialect == Dialect::Completion {
            return json!({
                "index": output.choice, "text": output.text, "logprobs": null, "finish_reason": finish,
                "stop_reason": null, "prompt_token_ids": null, "token_ids": null,
            });
        }
        let mut choice = json!({
            "index": output.choice, "delta": {"content": output.text}, "logprobs": null, "finish_reason": finish,
            "token_ids": null,
        });
        if finish.is_some() {
            choice["stop_reason"] = Value::Null;
        }
        choice
    }

    fn chunk(&self, choice: Value) -> Value {
        let object = match self.envelope.dialect {
            Dialect::Generate => {
                return json!({
                    "request_id": self.envelope.id, "output_mode": "tokens", "usage": null, "choices": [choice],
                });
            }
            Dialect::Chat => "chat.completion.chunk",
            Dialect::Transcription => "transcription.chunk",
            Dialect::Translation => "translation.chunk",
            Dialect::Completion | Dialect::Responses | Dialect::Message => "text_completion",
        };
        json!({
            "id": self.envelope.id, "object": object, "created": self.envelope.created,
            "model": self.envelope.model, "choices": [choice],
        })
    }

    fn response_events(&mut self, output: &Output, first: bool, out: &mut VecDeque<Bytes>) {
        let item = self.envelope.message_id();
        if first {
            let begun = self.envelope.response(&self.answer, false);
            self.event("response.created", json!({"response": begun}), out);
        }
        let place = json!({"item_id": item, "output_index": 0, "content_index": 0});
        let mut delta = place.clone();
        delta["delta"] = output.text.clone().into();
        self.event("response.output_text.delta", delta, out);
        if output.finish.is_some() {
            let mut text = place;
            text["text"] = self.answer.choice(0).text.clone().into();
            self.event("response.output_text.done", text, out);
            let response = self.envelope.response(&self.answer, true);
            let name = match output.finish {
                Some(Finish::Length) => "response.incomplete",
                _ => "response.completed",
            };
            if let Some(kept) = &self.kept {
                kept.keep(&self.envelope.id, response.clone());
            }
            self.event(name, json!({"response": response}), out);
        }
    }

    fn event(&mut self, name: &str, mut event: Value, out: &mut VecDeque<Bytes>) {
        event["type"] = name.into();
        event["sequence_number"] = self.events.into();
        self.events += 1;
        let event = Bytes::from(format!("event: {name}\ndata: {event}\n\n"));
        if let Some(kept) = self.kept.as_ref().filter(|_| self.envelope.is_background) {
            kept.add_event(&self.envelope.id, event.clone());
        }
        out.push_back(event);
    }
}

fn data(chunk: &Value) -> Bytes {
    Bytes::from(format!("data: {chunk}\n\n"))
}
