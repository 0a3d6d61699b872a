//! The cases: what one request, event or stream makes the pure crates do. Inputs are made from numbers, so that they
//! never change.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::SystemTime;

use bench_vocabulary::Words;
use bytes::Bytes;
use inference_api::{CachedTokensFilter, Endpoint, Peek, PromptParts, Tail, error_in_first_event, peek};
use kv_index::{Holder, IndexLimits, Prompt, SharedPrefixIndex};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier, WorkerId, WorkerLoad,
};
use tokenize::{Budget, CacheLimits, Chat, FilePaths, Model, Rendered, TokenizationCache, Tokens};

use crate::{request_cases, trace_cases};

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// Case to be counted.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Minimum number of runs for a stable count.
    pub(crate) times: u32,
    /// Does it so often, after setting it up.
    pub(crate) run: fn(u32) -> Outcome,
}

const fn case(name: &'static str, about: &'static str, times: u32, run: fn(u32) -> Outcome) -> Case {
    Case {
        name,
        about,
        times,
        run,
    }
}

pub(crate) const CASES: &[Case] = &[
    case("peek-1k", "what routing reads of a chat of 1 KiB", 100, |times| {
        peeked(1_024, times)
    }),
    case("peek-32k", "the same of 32 KiB", 20, |times| {
        peeked(32_768, times)
    }),
    case(
        "peek-ids-32k",
        "the same of 32 KiB of token ids, with the ids",
        20,
        peeked_ids,
    ),
    case("hash-8k", "the block hashes of 8,192 tokens", 20, hashed),
    case(
        "lookup-8k-4",
        "hashing and looking up 8,192 tokens on 4 workers, one of which holds them",
        20,
        |times| looked_up(4, times),
    ),
    case("lookup-8k-256", "the same on 256 workers", 20, |times| {
        looked_up(256, times)
    }),
    case(
        "lookup-miss-256",
        "the same with a prompt that no worker holds",
        50,
        |times| missed(256, times),
    ),
    case("apply-8", "eight blocks stored and removed", 100, applied),
    case("load-64", "the loads of 64 workers, booked and read", 100, loads),
    case(
        "sse-200",
        "a stream of 200 tokens, scanned on its way",
        10,
        streamed,
    ),
    case(
        "turn-32k",
        "rendering and tokenizing a conversation of 32 KiB of which one turn of 256 bytes is new, with words met before",
        5,
        |times| turned(30, 1_000, times),
    ),
    case("turn-1k", "the same of a KiB, in three messages", 20, |times| {
        turned(2, 400, times)
    }),
    case(
        "known-32k",
        "the turn of turn-32k as a body that is read, with the conversation known up to the last question but one",
        10,
        |times| known(30, 1_000, times),
    ),
    case(
        "fresh-32k",
        "a conversation of 32 KiB of which nothing is known but its words",
        3,
        |times| fresh(31, 1_000, times),
    ),
    case("fresh-1k", "the same of a KiB, in three messages", 20, |times| {
        fresh(3, 400, times)
    }),
    case(
        "trace-notes",
        "the notes of a request that is sampled",
        100,
        trace_cases::noted,
    ),
    case(
        "trace-spans",
        "the notes of a request, and its spans, which the exporter's thread makes",
        20,
        trace_cases::exported,
    ),
    case(
        "request-1k",
        "a request of 1 KiB, with its client and its engine, by a native policy, traces off",
        300,
        |times| request_cases::requested(None, times),
    ),
    case(
        "request-traces-0",
        "the same with traces on and none sampled",
        300,
        |times| request_cases::requested(Some(0.0), times),
    ),
    case(
        "request-traces-all",
        "the same with every request sampled, and its spans encoded",
        320,
        |times| request_cases::requested(Some(1.0), times),
    ),
];

/// Returns a chat's body about so long.
fn chat(bytes: usize) -> Vec<u8> {
    let content = Words::of(1).text(bytes.saturating_sub(120));
    format!(
        r#"{{"model":"bench","max_tokens":16,"stream":false,"temperature":0.7,"messages":[{{"role":"user","content":"{content}"}}]}}"#
    )
    .into_bytes()
}

fn peeked(bytes: usize, times: u32) -> Outcome {
    let body = chat(bytes);
    for _ in 0..times {
        black_box(peek(Endpoint::ChatCompletions, black_box(&body))?);
    }
    Ok(())
}

fn peeked_ids(times: u32) -> Outcome {
    let ids: Vec<_> = tokens(0).iter().take(4_700).map(u32::to_string).collect();
    let body = format!(
        r#"{{"model":"bench","max_tokens":16,"prompt":[{}]}}"#,
        ids.join(",")
    );
    for _ in 0..times {
        let peek = peek(Endpoint::Completions, black_box(body.as_bytes()))?;
        black_box(peek.token_ids());
    }
    Ok(())
}

const BLOCK: usize = 16;
const PROMPT_BLOCKS: usize = 512;

fn tokens(seed: u32) -> Vec<u32> {
    let count = (PROMPT_BLOCKS * BLOCK) as u32;
    (0..count)
        .map(|token| (token + seed).wrapping_mul(2_654_435_761) % 128_000)
        .collect()
}

fn hashed(times: u32) -> Outcome {
    let tokens = tokens(0);
    for _ in 0..times {
        let mut prompt = Prompt::new(&tokens[..], None, None);
        black_box(prompt.hashes(BLOCK as u32, PROMPT_BLOCKS));
    }
    Ok(())
}

fn stored(seed: u32, tokens: Vec<u32>) -> BlockEvent {
    let blocks = (tokens.len() / BLOCK) as u64;
    let hash = |block: u64| {
        EngineBlockHash((u64::from(seed) * 1_000_000 + block).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    };
    BlockEvent::Stored(StoredBlocks {
        hashes: (0..blocks).map(hash).collect(),
        parent: None,
        tokens,
        block_size: BLOCK as u32,
        tier: Tier::Device,
        lora: None,
        extra_keys: Vec::new(),
        group: 0,
        attention: Attention::Full,
    })
}

fn holder(worker: u32) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(0),
    }
}

/// Returns an index where every worker holds one prompt of its own.
fn index(workers: u32) -> SharedPrefixIndex {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
    for worker in 0..workers {
        index.apply(holder(worker), &stored(worker, tokens(worker * 10_007)));
    }
    index
}

fn looked_up(workers: u32, times: u32) -> Outcome {
    ask(workers, &tokens(10_007), times)
}

fn missed(workers: u32, times: u32) -> Outcome {
    ask(workers, &tokens(77_777_777), times)
}

fn ask(workers: u32, tokens: &[u32], times: u32) -> Outcome {
    let index = index(workers);
    let ids: Vec<_> = (0..workers).map(WorkerId).collect();
    let mut matches = Vec::new();
    for _ in 0..times {
        let mut prompt = Prompt::new(tokens, None, None);
        index.matches(&mut prompt, &ids, &mut matches);
        black_box(&matches);
    }
    Ok(())
}

fn applied(times: u32) -> Outcome {
    let index = index(4);
    let stored = stored(1_000, tokens(5)[..8 * BLOCK].to_vec());
    let BlockEvent::Stored(blocks) = &stored else {
        return Ok(());
    };
    let removed = BlockEvent::Removed(RemovedBlocks {
        hashes: blocks.hashes.clone(),
        tier: Some(Tier::Device),
        group: 0,
    });
    for _ in 0..times {
        black_box(index.apply(holder(0), &stored));
        black_box(index.apply(holder(0), &removed));
    }
    Ok(())
}

fn loads(times: u32) -> Outcome {
    let loads: Vec<_> = (0..64).map(|_| Arc::new(WorkerLoad::default())).collect();
    for at in 0..times {
        let lease = loads[at as usize % 64].book(8_192, 1_024);
        for load in &loads {
            black_box(load.read());
        }
        drop(lease);
    }
    Ok(())
}

fn streamed(times: u32) -> Outcome {
    let event = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":0,"model":"bench","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}"#;
    let chunk = Bytes::from(format!("{event}\n\n"));
    for _ in 0..times {
        let (mut tail, mut filter) = (Tail::default(), CachedTokensFilter::new(Some(5)));
        black_box(error_in_first_event(&chunk));
        for _ in 0..200 {
            tail.push(black_box(&chunk));
            black_box(filter.push(chunk.clone()));
        }
        tail.push(b"data: [DONE]\n\n");
        black_box((
            tail.stream_is_finished(),
            tail.cached_tokens(),
            tail.output_tokens(),
        ));
    }
    Ok(())
}

/// Model, caches and words of a conversation.
struct Setting {
    model: Model,
    cache: TokenizationCache,
    words: Words,
}

impl Setting {
    /// Creates a setting whose tokenizer has met the words of the language before.
    fn new(conversations: usize) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        bench_vocabulary::write_tokenizer(folder.path())?;
        let paths = FilePaths {
            tokenizer: folder.path().to_path_buf(),
            chat_template: None,
        };
        let model = Model::load(&paths.read()?, None)?;
        let cache = TokenizationCache::with_conversations(CacheLimits {
            pieces: 64 << 20,
            conversations,
        });
        let mut words = Words::of(3);
        let all = Rendered::text(words.text(64 << 10), false);
        model.complete(model.prepare(all, &cache), &cache, &mut Budget::unlimited())?;
        Ok(Self { model, cache, words })
    }

    /// Returns the body of a conversation whose messages have so many bytes.
    fn body(&mut self, messages: &[usize]) -> String {
        let message = |(at, bytes): (usize, &usize)| {
            let role = ["user", "assistant"][at % 2];
            format!(r#"{{"role":"{role}","content":"{}"}}"#, self.words.text(*bytes))
        };
        let messages: Vec<_> = messages.iter().enumerate().map(message).collect();
        format!(r#"{{"model":"bench","messages":[{}]}}"#, messages.join(","))
    }

    /// Tokenizes a request's prompt.
    fn tokens(&self, peek: &Peek<'_>) -> Result<Tokens, Box<dyn Error>> {
        let Some(PromptParts::Chat(parts)) = peek.prompt_parts() else {
            return Err("the body is no chat".into());
        };
        let chat = Chat {
            messages: &parts.messages,
            positions: peek.message_positions(),
            ..Chat::default()
        };
        self.complete(&chat)
    }

    fn complete(&self, chat: &Chat<'_>) -> Result<Tokens, Box<dyn Error>> {
        let prepared = self
            .model
            .prepare_chat(chat, SystemTime::UNIX_EPOCH, &self.cache)?;
        Ok(self
            .model
            .complete(prepared, &self.cache, &mut Budget::unlimited())?)
    }
}

/// Turns of so many bytes, and a new one of 256 bytes each time.
fn turned(turns: usize, bytes: usize, times: u32) -> Outcome {
    let mut setting = Setting::new(0)?;
    let body = setting.body(&vec![bytes; turns]);
    let (_, history) = body
        .split_once(':')
        .and_then(|(_, rest)| rest.split_once(':'))
        .ok_or("a body")?;
    let history = history.strip_suffix("]}").ok_or("a body")?;
    for _ in 0..=times {
        let question = setting.words.text(256);
        let messages = format!(r#"{history},{{"role":"user","content":"{question}"}}]"#);
        let chat = Chat {
            messages: &messages,
            ..Chat::default()
        };
        black_box(setting.complete(&chat)?);
    }
    Ok(())
}

/// The same as bodies, with known conversations.
fn known(turns: usize, bytes: usize, times: u32) -> Outcome {
    let mut setting = Setting::new(64 << 20)?;
    let continued = next_turns(&mut setting, turns, bytes, times)?;
    if continued < times {
        return Err(format!("{continued} of {times} turns were continued").into());
    }
    Ok(())
}

/// Returns the number of continued turns.
fn next_turns(setting: &mut Setting, turns: usize, bytes: usize, times: u32) -> Result<u32, Box<dyn Error>> {
    let body = setting.body(&vec![bytes; turns]);
    let history = body.strip_suffix("]}").ok_or("a body")?;
    let mut continued = 0;
    for _ in 0..=times {
        let question = setting.words.text(256);
        let body = format!(r#"{history},{{"role":"user","content":"{question}"}}]}}"#);
        let peek = peek(Endpoint::ChatCompletions, body.as_bytes())?;
        continued += u32::from(black_box(setting.tokens(&peek)?).is_continued);
    }
    Ok(continued)
}

/// New messages of so many bytes each time.
fn fresh(messages: usize, bytes: usize, times: u32) -> Outcome {
    let mut setting = Setting::new(64 << 20)?;
    for _ in 0..times {
        let body = setting.body(&vec![bytes; messages]);
        let peek = peek(Endpoint::ChatCompletions, body.as_bytes())?;
        black_box(setting.tokens(&peek)?);
    }
    Ok(())
}
