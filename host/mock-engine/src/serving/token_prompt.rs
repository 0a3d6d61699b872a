//! `/inference/v1/generate`, after vLLM 0.32: token ids in, token ids out.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::Context;
use crate::serving::ask::{Ask, read};
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{Dialect, Envelope, Said};
use crate::tokens::tokenize;

/// Sampling parameters that change how long an answer is, and how many there are.
const SAMPLING: [&str; 6] = [
    "max_tokens",
    "min_tokens",
    "n",
    "ignore_eos",
    "stop",
    "stop_token_ids",
];

#[derive(Debug, Deserialize)]
struct Body {
    token_ids: Vec<u32>,
    sampling_params: Map<String, Value>,
}

impl Ask {
    /// A body of the path.
    pub(crate) fn tokens(context: &Context, body: &[u8]) -> Result<Self, Refusal> {
        let Body {
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
    /// The answer to a request that does not stream.
    pub(super) fn generated(&self, said: &Said, kv_transfer_params: &Value) -> Value {
        let choice = |index: usize| {
            let choice = said.choice(index as u32);
            entry(index as u32, &choice.text, choice.finish)
        };
        let choices: Vec<Value> = (0..said.choices()).map(choice).collect();
        json!({
            "request_id": self.id, "model": self.model, "created": self.created, "usage": self.usage(said),
            "prompt_logprobs": null, "prompt_token_id_logprobs": null, "prompt_token_ids": null, "mm_placeholders": null,
            "metrics": null, "kv_transfer_params": kv_transfer_params, "ec_transfer_params": null,
            "output_mode": "tokens", "choices": choices,
        })
    }

    /// The entry of one token in a stream.
    pub(super) fn generated_choice(&self, output: &Output) -> Value {
        entry(output.choice, &output.text, output.finish)
    }
}

/// The words of an answer are tokenised to the ids that were generated.
fn entry(index: u32, text: &str, finish: Option<Finish>) -> Value {
    json!({
        "index": index, "finish_reason": finish.map(Finish::as_str), "stop_reason": null, "token_ids": tokenize(text),
        "routed_experts": null, "sampling_mask": null, "weight_versions": null, "logprobs": null,
    })
}
