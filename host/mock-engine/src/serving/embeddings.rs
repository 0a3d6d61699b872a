//! `/v1/embeddings`: prompts are computed like any other, the vectors are hashes.

use serde::Deserialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::event::Namespace;
use crate::sequence::{Finish, Submission};
use crate::serving::ask::{Prompt, read, resolve};
use crate::serving::refusal::Refusal;
use crate::serving::{Context, unix_now};

/// Numbers a vector.
const DIMENSIONS: u64 = 16;
/// Most inputs of one request.
const MAX_INPUTS: usize = 256;

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    input: Prompt,
}

/// The answer to a body.
pub(crate) async fn embed(context: &Context, body: &[u8]) -> Result<Value, Refusal> {
    let body: Body = read(body)?;
    let (model, adapter) = resolve(context, body.model)?;
    let inputs = body.input.into_token_lists();
    if inputs.is_empty() || inputs.len() > MAX_INPUTS || inputs.iter().any(Vec::is_empty) {
        let message = format!("give 1 to {MAX_INPUTS} inputs, none of them empty");
        return Err(Refusal::bad("input", message));
    }
    let limit = context.config.context_limit();
    if let Some(long) = inputs.iter().find(|input| input.len() >= limit as usize) {
        return Err(Refusal::prompt_too_long(limit, long.len()));
    }
    let (mut data, mut tokens) = (Vec::new(), 0);
    for (index, input) in inputs.into_iter().enumerate() {
        tokens += input.len();
        data.push(json!({"index": index, "object": "embedding", "embedding": vector(&input)}));
        let namespace = Namespace {
            adapter: adapter.clone(),
            salt: None,
        };
        compute(context, input, namespace).await?;
    }
    Ok(json!({
        "id": format!("embd-{}", context.request_id()), "object": "list", "created": unix_now(),
        "model": model, "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0},
    }))
}

/// Runs the prompt through the engine; the one token that comes out is nobody's.
async fn compute(context: &Context, prompt: Vec<u32>, namespace: Namespace) -> Result<(), Refusal> {
    let (output, mut done) = context.tokens(1);
    let submission = Submission {
        prompt,
        limit: 1,
        finish: Finish::Length,
        namespace,
        choice: 0,
        variant: 0,
        output,
        transfer: None,
    };
    if !context.submit(vec![submission]).await {
        return Err(Refusal::overloaded());
    }
    done.receiver
        .recv()
        .await
        .map(|_| ())
        .ok_or_else(Refusal::engine_dead)
}

/// A vector in -1..1, the same for the same tokens.
fn vector(tokens: &[u32]) -> Vec<f64> {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let number = |dimension| xxh3_64_with_seed(&bytes, dimension) >> 11;
    let unit = |number| number as f64 / (1_u64 << 52) as f64 - 1.0;
    (0..DIMENSIONS).map(number).map(unit).collect()
}
