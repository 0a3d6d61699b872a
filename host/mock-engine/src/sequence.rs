//! Sequence: a request inside the engine, with its tokens, blocks and progress.

use tokio::sync::mpsc;

use crate::answer::Answer;
use crate::cache::BlockId;
use crate::event::{Namespace, Stored, block_hash};
use crate::tokens::token_id;
use crate::transfer::Transfer;

/// Finish reason of an answer, in OpenAI's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The answer is complete.
    Stop,
    /// The answer reached `max_tokens`.
    Length,
    /// The KV cache from another engine did not arrive.
    Error,
}

impl Finish {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Error => "error",
        }
    }
}

/// One generated token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// Index of the answer's choice.
    pub(crate) choice: u32,
    /// Text of the token.
    pub(crate) text: String,
    /// Prompt tokens found in the cache.
    pub(crate) cached_tokens: u32,
    /// Finish reason; set on the last token.
    pub(crate) finish: Option<Finish>,
}

/// A request for the scheduler.
#[derive(Debug)]
pub(crate) struct Submission {
    /// Prompt, not empty; with `limit` more tokens it fits the context.
    pub(crate) prompt: Vec<u32>,
    /// Tokens to generate, at least one.
    pub(crate) limit: u32,
    /// Finish reason at that limit.
    pub(crate) finish: Finish,
    /// Namespace of its blocks.
    pub(crate) namespace: Namespace,
    /// Index of the answer's choice.
    pub(crate) choice: u32,
    /// Index among the choices of its prompt; they differ.
    pub(crate) variant: u32,
    /// Receiver of tokens, with room for `limit` of them; closed when the client disconnects.
    pub(crate) output: mpsc::Sender<Output>,
    /// Transfer with another engine.
    pub(crate) transfer: Option<Transfer>,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The prompt, then the generated tokens.
    pub(crate) tokens: Vec<u32>,
    /// Hashes of its full blocks, as far as computed.
    pub(crate) hashes: Vec<u64>,
    /// Blocks, in order.
    pub(crate) blocks: Vec<BlockId>,
    /// Tokens with cache entries.
    pub(crate) computed: usize,
    /// Number of announced blocks.
    pub(crate) announced: usize,
    /// Cached prompt tokens when it first started.
    pub(crate) cached_tokens: Option<u32>,
    /// A part of its prompt was computed since it was last admitted.
    pub(crate) begun: bool,
    /// Pending transfer with another engine.
    pub(crate) transfer: Option<Transfer>,
    prompt_len: usize,
    limit: u32,
    finish: Finish,
    namespace: Namespace,
    choice: u32,
    answer: Answer,
    output: mpsc::Sender<Output>,
}

impl Sequence {
    pub(crate) fn new(submission: Submission, seed: u64) -> Self {
        Self {
            answer: Answer::new(seed.wrapping_add(submission.variant.into()), &submission.prompt),
            prompt_len: submission.prompt.len(),
            tokens: submission.prompt,
            hashes: Vec::new(),
            blocks: Vec::new(),
            computed: 0,
            announced: 0,
            cached_tokens: None,
            begun: false,
            limit: submission.limit,
            finish: submission.finish,
            namespace: submission.namespace,
            choice: submission.choice,
            output: submission.output,
            transfer: submission.transfer,
        }
    }

    pub(crate) fn prompt_len(&self) -> usize {
        self.prompt_len
    }

    pub(crate) fn finish(&self) -> Finish {
        self.finish
    }

    /// Returns the number of leading tokens whose KV cache comes from another engine.
    pub(crate) fn to_receive(&self) -> usize {
        match &self.transfer {
            Some(Transfer::Receive(receive)) => receive.tokens,
            _ => 0,
        }
    }

    pub(crate) fn client_left(&self) -> bool {
        self.output.is_closed()
    }

    /// Hashes every block that `tokens` leading tokens fill.
    pub(crate) fn hash_blocks(&mut self, tokens: usize, block_size: usize, seed: u64) {
        while self.hashes.len() < tokens / block_size {
            let start = self.hashes.len() * block_size;
            let content = &self.tokens[start..start + block_size];
            let hash = block_hash(seed, self.hashes.last().copied(), content, &self.namespace);
            self.hashes.push(hash);
        }
    }

    /// Returns the announcement of blocks `from..to`.
    pub(crate) fn stored(&self, from: usize, to: usize, block_size: usize) -> Stored {
        Stored {
            hashes: self.hashes[from..to].to_vec(),
            parent: from.checked_sub(1).map(|before| self.hashes[before]),
            tokens: self.tokens[from * block_size..to * block_size].to_vec(),
            namespace: self.namespace.clone(),
        }
    }

    /// Generates one token. Returns its receiver and the token.
    pub(crate) fn generate(&mut self) -> (mpsc::Sender<Output>, Output) {
        let text = self.answer.next_word();
        self.tokens.push(token_id(&text));
        let done = self.tokens.len() - self.prompt_len >= self.limit as usize;
        let output = Output {
            choice: self.choice,
            text,
            cached_tokens: self.cached_tokens.unwrap_or_default(),
            finish: done.then_some(self.finish),
        };
        (self.output.clone(), output)
    }

    /// Returns the end of an answer that could not begin.
    pub(crate) fn fail(self) -> (mpsc::Sender<Output>, Output) {
        let output = Output {
            choice: self.choice,
            text: String::new(),
            cached_tokens: 0,
            finish: Some(Finish::Error),
        };
        (self.output, output)
    }
}
