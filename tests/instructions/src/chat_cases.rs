//! Cases of chats: what their tokens take, by the bodies of turns.

use std::error::Error;
use std::hint::black_box;
use std::time::SystemTime;

use bench_vocabulary::Words;
use inference_api::{Endpoint, Peek, PromptParts, peek};
use kv_index::{Prompt, PromptSpace};
use routing::WorkerId;
use tokenize::{
    Budget, CacheLimits, Chat, FilePaths, HashSpace, KnownBeginning, Model, Rendered, TokenizationCache,
    Tokens,
};

use crate::cases::{BLOCK, Outcome, holder, index, stored};

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
pub(crate) fn turned(turns: usize, bytes: usize, times: u32) -> Outcome {
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
pub(crate) fn known(turns: usize, bytes: usize, times: u32) -> Outcome {
    next_turns(turns, bytes, times, |tokens| {
        black_box(tokens);
    })
}

/// The same, with the prompt's blocks looked up as the router does it.
pub(crate) fn looked_up(turns: usize, bytes: usize, times: u32) -> Outcome {
    let index = index(4);
    let ids: Vec<_> = (0..4).map(WorkerId).collect();
    let (mut matches, mut is_stored) = (Vec::new(), false);
    next_turns(
        turns,
        bytes,
        times,
        |Tokens {
             ids: tokens,
             beginning,
             ..
         }| {
            if !std::mem::replace(&mut is_stored, true) {
                let whole = tokens.len() / BLOCK * BLOCK;
                index.apply(holder(1), &stored(9, tokens.to_vec()[..whole].to_vec()));
            }
            let (shared, rest) = tokens.into_parts();
            let mut prompt = Prompt::new(rest, None, None);
            if let Some(shared) = shared {
                prompt = prompt.after(shared.count(), move |to| shared.read_into(to));
            }
            if let Some((space, hashes)) = beginning.as_ref().and_then(KnownBeginning::hashes) {
                let HashSpace { block_size, inputs } = space;
                prompt.take_over(PromptSpace { block_size, inputs }, hashes);
            }
            index.matches(&mut prompt, &ids, &mut matches);
            black_box(&matches);
            if let (Some(beginning), Some((space, hashes))) = (beginning, prompt.computed()) {
                let PromptSpace { block_size, inputs } = space;
                beginning.keep(HashSpace { block_size, inputs }, hashes);
            }
        },
    )
}

/// Tokenizes turns of a known conversation.
fn next_turns(turns: usize, bytes: usize, times: u32, mut done: impl FnMut(Tokens)) -> Outcome {
    let mut setting = Setting::new(64 << 20)?;
    let body = setting.body(&vec![bytes; turns]);
    let history = body.strip_suffix("]}").ok_or("a body")?;
    let mut continued = 0;
    for _ in 0..=times {
        let question = setting.words.text(256);
        let body = format!(r#"{history},{{"role":"user","content":"{question}"}}]}}"#);
        let peek = peek(Endpoint::ChatCompletions, body.as_bytes())?;
        let tokens = setting.tokens(&peek)?;
        continued += u32::from(tokens.is_continued);
        done(tokens);
    }
    if continued < times {
        return Err(format!("{continued} of {times} turns were continued").into());
    }
    Ok(())
}

/// New messages of so many bytes each time.
pub(crate) fn fresh(messages: usize, bytes: usize, times: u32) -> Outcome {
    let mut setting = Setting::new(64 << 20)?;
    for _ in 0..times {
        let body = setting.body(&vec![bytes; messages]);
        let peek = peek(Endpoint::ChatCompletions, body.as_bytes())?;
        black_box(setting.tokens(&peek)?);
    }
    Ok(())
}
