//! `/inference/v1/generate`, after vLLM 0.32: token ids in, token ids out.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::context::Context;
use crate::serving::inference_request::InferenceRequest;
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{AnswerSoFar, Dialect, Envelope};
use crate::tokens::tokenize;

/// Sampling parameters that change the length or the number of answers.
const SAMPLING: [&str; 6] = [
    "max_tokens",
    "min_tokens",
    "n",
    "ignore_eos",
    "stop",
    "stop_token_ids",
];

#[derive(Debug, Deserialize)]
struct TokenBody {
    token_ids: Vec<u32>,
    sampling_params: Map<String, Value>,
}

impl InferenceRequest {
    /// Parses a body of the path.
    pub(crate) fn tokens(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        let TokenBody {
            token_ids,
            sampling_params,
        } = read(body)?;
        let mut rest: Map<String, Value> = read(body)?;
        for name in SAMPLING {
            let value = sampling_params.get(name).cloned().unwrap_or_default();
            rest.insert(name.to_owned(), value);
        }
        Self::of_prompt(context, Dialect::Generate, rest.into(), token_ids)
    }
}

impl Envelope {
    /// Returns the answer to a request without streaming.
    pub(super) fn generated(&self, answer: &AnswerSoFar, kv_transfer_params: &Value) -> Value {
        let choice = |index: usize| {
            let choice = answer.choice(index as u32);
            entry(index as u32, &choice.text, choice.finish)
        };
        let choices: Vec<Value> = (0..answer.choices()).map(choice).collect();
        json!({
            "request_id": self.id, "model": self.model, "created": self.created, "usage": self.usage(answer),
            "prompt_logprobs": null, "prompt_token_id_logprobs": null, "prompt_token_ids": null, "mm_placeholders": null,
            "metrics": null, "kv_transfer_params": kv_transfer_params, "ec_transfer_params": null,
            "output_mode": "tokens", "choices": choices,
        })
    }

    /// Returns the entry of one token in a stream.
    pub(super) fn generated_choice(&self, output: &Output) -> Value {
        entry(output.choice, &output.text, output.finish)
    }
}

/// The words of an answer are tokenized to the generated ids.
fn entry(index: u32, text: &str, finish: Option<Finish>) -> Value {
    json!({
        "index": index, "finish_reason": finish.map(Finish::as_str), "stop_reason": null, "token_ids": tokenize(text),
        "routed_experts": null, "sampling_mask": null, "weight_versions": null, "logprobs": null,
    })
}
