//! The cases: what one request, event or stream makes the pure crates do. Inputs are made from numbers, so that they
//! never change.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;

use bench_vocabulary::Words;
use bytes::Bytes;
use inference_api::{CachedTokensFilter, Endpoint, Tail, error_in_first_event, peek, read_ids};
use kv_index::{Holder, IndexLimits, Prompt, SharedPrefixIndex};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, RemovedBlocks, StoredBlocks, Tier, WorkerId, WorkerLoad,
};
use tokenize::TokenizationCache;

use crate::{chat_cases, request_cases, stream_cases, trace_cases};

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
    case(
        "known-ids-32k",
        "the same of a prompt whose strides are known",
        20,
        known_ids,
    ),
    case("hash-8k", "the block hashes of 8,192 tokens", 20, hashed),
    case(
        "lookup-8k-4",
        "hashing and looking up 8,192 tokens on 4 workers, one of which holds them",
        20,
        |times| looked_up(4, times),
    ),
    case("lookup-8k-256", "the same on 256 workers", 1_000, |times| {
        looked_up(256, times)
    }),
    case(
        "lookup-miss-256",
        "the same with a prompt that no worker holds",
        1_000,
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
        40,
        |times| chat_cases::turned(30, 1_000, times),
    ),
    case("turn-1k", "the same of a KiB, in three messages", 200, |times| {
        chat_cases::turned(2, 400, times)
    }),
    case(
        "known-32k",
        "the turn of turn-32k as a body that is read, with the conversation known up to the last question but one",
        60,
        |times| chat_cases::known(30, 1_000, times),
    ),
    case(
        "lookup-known-32k",
        "the same, with the blocks of the prompt looked up on 4 workers, one of which holds the conversation",
        60,
        |times| chat_cases::looked_up(30, 1_000, times),
    ),
    case(
        "fresh-32k",
        "a conversation of 32 KiB of which nothing is known but its words",
        10,
        |times| chat_cases::fresh(31, 1_000, times),
    ),
    case("fresh-1k", "the same of a KiB, in three messages", 100, |times| {
        chat_cases::fresh(3, 400, times)
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
        "request-256",
        "a request of 1 KiB in token ids, with the columns of the default policy of 256 workers with live caches",
        100,
        |times| request_cases::requested_of(256, times),
    ),
    case("request-64", "the same with 64 workers", 100, |times| {
        request_cases::requested_of(64, times)
    }),
    case("request-4", "the same with 4 workers", 300, |times| {
        request_cases::requested_of(4, times)
    }),
    case(
        "request-held",
        "a request of request-1k, held with those of 15 other clients until the one worker is free",
        320,
        request_cases::held,
    ),
    case(
        "stream-token",
        "a token of a streamed answer, from the engine's write to the client's read",
        300,
        stream_cases::streamed,
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

/// Cases whose allocations are counted as well, with the names of these counts.
pub(crate) const ALLOCATIONS: &[(&str, &str)] = &[
    ("allocations-1k", "request-1k"),
    ("allocations-held", "request-held"),
    ("allocations-chat-1k", "turn-1k"),
    ("allocations-token", "stream-token"),
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

/// Returns a request with a prompt of so many token ids.
fn id_body(count: usize) -> String {
    let ids: Vec<_> = tokens(0).iter().take(count).map(u32::to_string).collect();
    let ids = ids.join(",");
    format!(r#"{{"model":"bench","max_tokens":16,"prompt":[{ids}]}}"#)
}

/// Reads a prompt that the cache has, but for its end.
fn known_ids(times: u32) -> Outcome {
    let cache = TokenizationCache::new(64 << 20);
    let read = |body: &str| -> Outcome {
        let peek = peek(Endpoint::Completions, black_box(body.as_bytes()))?;
        let list = peek.id_list().ok_or("no ids")?;
        black_box(cache.read_ids(list, read_ids));
        Ok(())
    };
    let body = id_body(4_700);
    read(&body)?;
    for _ in 0..times {
        read(&body)?;
    }
    Ok(())
}

fn peeked_ids(times: u32) -> Outcome {
    let body = id_body(4_700);
    for _ in 0..times {
        let peek = peek(Endpoint::Completions, black_box(body.as_bytes()))?;
        black_box(peek.token_ids());
    }
    Ok(())
}

pub(crate) const BLOCK: usize = 16;
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

pub(crate) fn stored(seed: u32, tokens: Vec<u32>) -> BlockEvent {
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

pub(crate) fn holder(worker: u32) -> Holder {
    Holder {
        worker: WorkerId(worker),
        rank: DpRank(0),
    }
}

/// Returns an index where every worker holds one prompt of its own.
pub(crate) fn index(workers: u32) -> SharedPrefixIndex {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
    for worker in 0..workers {
        index.apply(holder(worker), &stored(worker, tokens(worker * 10_007)));
    }
    index
}

fn looked_up(workers: u32, times: u32) -> Outcome {
    look_up(workers, &tokens(10_007), times)
}

fn missed(workers: u32, times: u32) -> Outcome {
    look_up(workers, &tokens(77_777_777), times)
}

fn look_up(workers: u32, tokens: &[u32], times: u32) -> Outcome {
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
