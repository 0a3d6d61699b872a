//! Record of one request: its policy calls and its outcome.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use crate::call::{CallNote, cut, unix_us};
use crate::line::OutcomeLine;
use crate::memory::MemoryShare;
use crate::note_line::Bytes;
use crate::number::Number;
use crate::prompt_blocks::PromptBlocks;
use crate::recorder::Recorder;
use crate::selection::{Kept, RecordSpec};
use crate::writer::Message;

/// Maximum recorded length of a request id and of a model name, in bytes. Clients choose both.
pub(crate) const MAX_ID: usize = 128;
const MAX_MODEL: usize = 256;
/// Maximum calls per request kept in memory. A held request is decided repeatedly.
const MAX_CALLS: usize = 32;

/// Estimated size of the names in an outcome, in bytes.
const ENDING: usize = 512;

/// Facts about a request at the start of its record.
#[derive(Debug)]
pub struct TraceStart<'a> {
    /// Sequence number.
    pub seq: u64,
    /// Request id, as received.
    pub id: &'a [u8],
    /// Whether it asks to be explained.
    pub asks: bool,
    /// Model.
    pub model: &'a str,
    /// Path.
    pub path: &'a str,
    /// Name of the pool.
    pub pool: &'a str,
    /// Route, counted from 0.
    pub route: usize,
    /// Tokens of the prompt, if known.
    pub prompt_tokens: Option<usize>,
}

/// Token counts that a worker reported with its response.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseUsage {
    /// Prompt tokens.
    pub prompt: Option<u64>,
    /// Cached prompt tokens.
    pub cached: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// Events of the stream.
    pub events: u64,
}

/// Record of a request.
#[derive(Debug)]
pub struct Trace {
    /// Lives as long as the router.
    recorder: Weak<Recorder>,
    pub(crate) kept: Kept,
    all_columns: bool,
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) model: String,
    pub(crate) path: Box<str>,
    pub(crate) pool: Box<str>,
    /// Route, counted from 1.
    pub(crate) route: usize,
    prompt_tokens: Option<u32>,
    /// Block hashes, if the file contains them.
    blocks: Option<PromptBlocks>,
    progress: Mutex<Progress>,
    _share: MemoryShare,
}

/// Events of the request so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Calls kept in memory.
    pub(crate) calls: Vec<Arc<Record>>,
    /// Number of other calls.
    pub(crate) left_out: usize,
    pub(crate) outcome: Option<OutcomeLine>,
    response: ResponseNote,
}

/// Recorded call with its share of the memory budget.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) call: CallNote,
    pub(crate) _share: MemoryShare,
}

impl Record {
    /// Returns the bytes of a recorded call, including its entries in the list and the channel.
    fn bytes(call: &CallNote) -> usize {
        call.bytes() + size_of::<Self>() - size_of::<CallNote>() + 2 * size_of::<Message>()
    }
}

/// Facts about the response so far.
#[derive(Debug, Default)]
struct ResponseNote {
    status: Option<u16>,
    worker: Option<Box<str>>,
    prefill: Option<Box<str>>,
    matched: Option<u32>,
    first_token: Option<Duration>,
    prompt: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
    events: Option<u64>,
}

impl Trace {
    /// Starts the record of a request if the rules select it.
    ///
    /// `blocks` hashes the prompt's blocks of a size in tokens. It is called only if the file contains them.
    pub fn begin(
        spec: &RecordSpec,
        start: TraceStart<'_>,
        blocks: impl FnOnce(NonZeroU32) -> Option<PromptBlocks>,
    ) -> Option<Arc<Self>> {
        let kept = spec.choose(start.seq, start.asks)?;
        let id = String::from_utf8_lossy(start.id);
        let (id, model) = (cut(&id, MAX_ID), cut(start.model, MAX_MODEL));
        let blocks = spec.prompt_blocks.filter(|_| kept.in_file).and_then(blocks);
        let hashes = blocks.as_ref().map_or(0, |blocks| blocks.hashes.len());
        let bytes = size_of::<Self>() + 2 * id.len() + model.len() + hashes + ENDING;
        let share = spec.recorder.reserve(bytes)?;
        let trace = Arc::new(Self {
            recorder: Arc::downgrade(&spec.recorder),
            kept,
            all_columns: spec.all_columns,
            id: id.into_owned(),
            seq: start.seq,
            model: model.into_owned(),
            path: start.path.into(),
            pool: start.pool.into(),
            route: start.route + 1,
            prompt_tokens: start.prompt_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            blocks,
            progress: Mutex::default(),
            _share: share,
        });
        if kept.in_memory {
            spec.recorder.remember(&trace, spec.explained);
        }
        Some(trace)
    }

    /// Returns whether all known columns are recorded.
    #[must_use]
    pub fn all_columns(&self) -> bool {
        self.all_columns
    }

    /// Records a call of a policy or of the fallback.
    pub fn called(self: &Arc<Self>, call: CallNote) {
        let Some(recorder) = self.recorder.upgrade() else {
            return;
        };
        let Some(share) = recorder.reserve(Record::bytes(&call)) else {
            self.progress().left_out += 1;
            return;
        };
        let record = Arc::new(Record { call, _share: share });
        if self.kept.in_memory {
            let mut progress = self.progress();
            if progress.calls.len() < MAX_CALLS {
                progress.calls.push(Arc::clone(&record));
            } else {
                progress.left_out += 1;
            }
        }
        if self.kept.in_file {
            recorder.write_call(self, record);
        }
    }

    /// Records the worker whose response begins.
    pub fn answers(&self, worker: &str, prefill: Option<&str>, matched: Option<u32>) {
        let response = &mut self.progress().response;
        response.worker = Some(worker.into());
        response.prefill = prefill.map(Into::into);
        response.matched = matched;
    }

    /// Records the response status.
    pub fn answered(&self, status: u16) {
        self.progress().response.status = Some(status);
    }

    /// Records the time from the request to the first byte of a streamed response.
    pub fn first_token(&self, after: Duration) {
        self.progress().response.first_token = Some(after);
    }

    /// Records the usage of a response that was read to its end.
    pub fn read(&self, usage: ResponseUsage) {
        let response = &mut self.progress().response;
        response.prompt = usage.prompt;
        response.cached = usage.cached;
        response.output = usage.output;
        response.events = Some(usage.events).filter(|events| *events > 0 && usage.output.is_none());
    }

    /// Records the outcome by its name, and the duration of the request.
    pub fn ended(self: &Arc<Self>, outcome: &str, after: Duration) {
        let line = self.outcome_line(outcome, after);
        self.progress().outcome = Some(line);
        if let Some(recorder) = self.recorder.upgrade().filter(|_| self.kept.in_file) {
            recorder.write_outcome(self);
        }
    }

    fn outcome_line(&self, outcome: &str, after: Duration) -> OutcomeLine {
        let response = std::mem::take(&mut self.progress().response);
        OutcomeLine {
            request: self.id.clone(),
            seq: self.seq,
            unix_us: unix_us(SystemTime::now()),
            outcome: outcome.to_owned(),
            status: response.status,
            worker: response.worker.map(String::from),
            prefill: response.prefill.map(String::from),
            ttft_ms: response.first_token.map(milliseconds),
            duration_ms: milliseconds(after),
            prompt_tokens: self
                .prompt_tokens
                .or_else(|| u32::try_from(response.prompt?).ok()),
            matched_tokens: response.matched,
            cached_tokens: response.cached,
            output_tokens: response.output,
            answer_events: response.events,
            block_tokens: None,
            blocks: None,
        }
    }

    /// Returns the outcome line of the file, which alone contains the prompt's block hashes.
    pub(crate) fn written_outcome(&self) -> Option<OutcomeLine> {
        let outcome = self.progress().outcome.clone()?;
        let blocks = self.blocks.as_ref();
        Some(OutcomeLine {
            block_tokens: blocks.map(|blocks| blocks.block_tokens.get()),
            blocks: blocks.map(|blocks| Bytes(blocks.hashes.to_vec())),
            ..outcome
        })
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> Number {
    Number(time.as_micros() as f64 / 1e3)
}
