//! Endpoints of models without text output: embeddings, pooling, classification, scores and ranks. Prompts are
//! computed like any other; vectors and scores are hashes of the tokens. Shapes follow vLLM 0.32.

use serde::Deserialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::event::Namespace;
use crate::sequence::{Finish, Submission};
use crate::serving::context::{Context, unix_now};
use crate::serving::inference_request::{ChatMessage, Prompt, conversation, resolve};
use crate::serving::reading::read;
use crate::serving::refusal::Refusal;
use crate::tokens::tokenize;

/// Numbers per vector.
const DIMENSIONS: u64 = 16;
/// Most prompts per request.
const MAX_PROMPTS: usize = 256;

/// One of these endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    /// `/v1/embeddings`.
    Embed,
    /// `/pooling`.
    Pool,
    /// `/classify`.
    Classify,
    /// `/score` and its version.
    Score,
    /// `/rerank` and its versions.
    Rerank,
}

/// Fields shared by all bodies.
#[derive(Debug, Deserialize)]
struct PoolingFields {
    model: Option<String>,
    cache_salt: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum InputBody {
    Input { input: Prompt },
    Chat { messages: Vec<ChatMessage> },
}

#[derive(Debug, Deserialize)]
struct ScoreBody {
    #[serde(alias = "queries", alias = "data_1")]
    text_1: Texts,
    #[serde(alias = "documents", alias = "items", alias = "data_2")]
    text_2: Texts,
}

#[derive(Debug, Deserialize)]
struct RerankBody {
    query: String,
    documents: Texts,
    #[serde(default)]
    top_n: usize,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

/// A parsed body.
#[derive(Debug)]
struct PoolingJob {
    prompts: Vec<Vec<u32>>,
    /// Documents of a rerank, one for each prompt.
    documents: Vec<String>,
    /// Number of best documents of a rerank, 0 for all.
    top_n: usize,
}

impl Texts {
    fn into_list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

impl Pooling {
    /// Returns the prefix of ids.
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Embed => "embd",
            Self::Pool => "pooling",
            Self::Classify => "classify",
            Self::Score | Self::Rerank => "score",
        }
    }

    fn job(self, body: &[u8]) -> Result<PoolingJob, Refusal> {
        let (prompts, documents, top_n) = match self {
            Self::Embed | Self::Pool | Self::Classify => (inputs(body)?, Vec::new(), 0),
            Self::Score => {
                let ScoreBody { text_1, text_2 } = read(body)?;
                (pairs(text_1.into_list(), &text_2.into_list())?, Vec::new(), 0)
            }
            Self::Rerank => {
                let body: RerankBody = read(body)?;
                let documents = body.documents.into_list();
                (pairs(vec![body.query], &documents)?, documents, body.top_n)
            }
        };
        Ok(PoolingJob {
            prompts,
            documents,
            top_n,
        })
    }

    /// Returns the entry of one prompt.
    fn entry(self, index: usize, prompt: &[u32]) -> Value {
        match self {
            Self::Embed => json!({"index": index, "object": "embedding", "embedding": vector(prompt)}),
            Self::Pool => json!({"index": index, "object": "pooling", "data": vector(prompt)}),
            Self::Classify => {
                let first = score(prompt);
                let label = if first < 0.5 { "LABEL_1" } else { "LABEL_0" };
                json!({"index": index, "label": label, "probs": [first, 1.0 - first], "num_classes": 2})
            }
            Self::Score | Self::Rerank => json!({"index": index, "object": "score", "score": score(prompt)}),
        }
    }
}

/// Answers a body; `id` is the client's request id.
pub(crate) async fn pool(
    context: &Context,
    kind: Pooling,
    body: &[u8],
    id: Option<&str>,
) -> Result<Value, Refusal> {
    let shared: PoolingFields = read(body)?;
    let (model, adapter) = resolve(context, shared.model)?;
    let job = kind.job(body)?;
    check(context, &job.prompts)?;
    let namespace = Namespace {
        adapter,
        salt: shared.cache_salt.map(Into::into),
    };
    for prompt in &job.prompts {
        compute(context, prompt.clone(), namespace.clone()).await?;
    }
    let tokens: usize = job.prompts.iter().map(Vec::len).sum();
    let id = id.map_or_else(|| context.request_id(), str::to_owned);
    let id = format!("{}-{id}", kind.id_prefix());
    if kind == Pooling::Rerank {
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        return Ok(json!({"id": id, "model": model, "usage": usage, "results": ranked(&job)}));
    }
    let entries = job.prompts.iter().enumerate();
    let data: Vec<Value> = entries.map(|(index, prompt)| kind.entry(index, prompt)).collect();
    Ok(json!({
        "id": id, "object": "list", "created": unix_now(), "model": model, "data": data,
        "usage": {
            "prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": null,
            "completion_tokens_details": null,
        },
    }))
}

fn inputs(body: &[u8]) -> Result<Vec<Vec<u32>>, Refusal> {
    Ok(match read(body)? {
        InputBody::Input { input } => input.into_token_lists(),
        InputBody::Chat { messages } => vec![conversation(messages)],
    })
}

/// Returns one prompt per pair of texts: 1:1, 1:N or N:N.
fn pairs(mut first: Vec<String>, second: &[String]) -> Result<Vec<Vec<u32>>, Refusal> {
    let refuse = |message: &str| Err(Refusal::plain(message.to_owned()));
    match (first.len(), second.len()) {
        (one, other) if one > 1 && one != other => {
            return refuse("Input lengths must be either 1:1, 1:N or N:N");
        }
        (0, _) => return refuse("At least one text element must be given"),
        (_, 0) => return refuse("At least one text_pair element must be given"),
        (1, other) => first.resize(other, first[0].clone()),
        _ => {}
    }
    let pair = |(one, other): (&String, &String)| tokenize(&format!("{one} {other}"));
    Ok(first.iter().zip(second).map(pair).collect())
}

fn check(context: &Context, prompts: &[Vec<u32>]) -> Result<(), Refusal> {
    if prompts.is_empty() || prompts.len() > MAX_PROMPTS || prompts.iter().any(Vec::is_empty) {
        let message = format!("give 1 to {MAX_PROMPTS} inputs, none of them empty");
        return Err(Refusal::bad("input", message));
    }
    let limit = context.config.context_limit();
    let long = prompts.iter().find(|prompt| prompt.len() >= limit as usize);
    long.map_or(Ok(()), |long| Err(Refusal::prompt_too_long(limit, long.len())))
}

/// Runs the prompt through the engine, and drops its one token.
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

/// Returns documents by their scores, the best first.
fn ranked(job: &PoolingJob) -> Vec<Value> {
    let mut scores: Vec<(usize, f64)> = job
        .prompts
        .iter()
        .map(|prompt| score(prompt))
        .enumerate()
        .collect();
    scores.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let most = if job.top_n == 0 { scores.len() } else { job.top_n };
    let result = |(index, score): (usize, f64)| {
        let document = json!({"text": job.documents[index], "multi_modal": null});
        json!({"index": index, "document": document, "relevance_score": score})
    };
    scores.into_iter().take(most).map(result).collect()
}

/// Returns a number of 53 bits, the same for the same tokens.
fn bits(tokens: &[u32], seed: u64) -> u64 {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, seed) >> 11
}

/// Returns a score from 0 to 1, the same for the same tokens.
fn score(tokens: &[u32]) -> f64 {
    bits(tokens, DIMENSIONS) as f64 / (1_u64 << 53) as f64
}

/// Returns a vector in -1..1, the same for the same tokens.
fn vector(tokens: &[u32]) -> Vec<f64> {
    let unit = |number| number as f64 / (1_u64 << 52) as f64 - 1.0;
    (0..DIMENSIONS)
        .map(|dimension| unit(bits(tokens, dimension)))
        .collect()
}
