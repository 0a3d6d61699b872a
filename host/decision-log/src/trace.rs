//! Record of one request: its policy calls and its outcome.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use crate::call::CallNote;
use crate::host_call_line::Bytes;
use crate::line::OutcomeLine;
use crate::memory::MemoryShare;
use crate::message::Message;
use crate::number::Number;
use crate::prompt_blocks::PromptBlocks;
use crate::request_note::RequestNote;
use crate::text::unix_us;

/// Maximum calls per request kept in memory: the first and the last ones. A held request is decided repeatedly, and its
/// last call places it.
const MAX_CALLS: usize = 32;

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
    sink: Weak<dyn TraceSink>,
    kept: Kept,
    all_columns: bool,
    pub(crate) request: RequestNote,
    /// Block hashes, if the file contains them.
    blocks: Option<PromptBlocks>,
    progress: Mutex<Progress>,
    _share: MemoryShare,
}

/// Destination of traces: the recorder.
pub(crate) trait TraceSink: Send + Sync + fmt::Debug {
    /// Takes memory from the budget of all records.
    fn reserve(&self, bytes: usize) -> Option<MemoryShare>;

    /// Sends a call to the log file.
    fn write_call(&self, trace: &Arc<Trace>, record: Arc<Record>);

    /// Sends the outcome of a request to the log file.
    fn write_outcome(&self, trace: &Arc<Trace>);
}

/// Destinations of a request's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) in_file: bool,
    pub(crate) in_memory: bool,
}

/// Recording rules of one request.
#[derive(Debug)]
pub(crate) struct TraceRules {
    /// Destinations of the record.
    pub(crate) kept: Kept,
    /// Set if all known columns are recorded.
    pub(crate) all_columns: bool,
    /// Block hashes, if the file contains them.
    pub(crate) blocks: Option<PromptBlocks>,
}

/// Events of the request so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Calls kept in memory.
    pub(crate) calls: Vec<Arc<Record>>,
    /// Number of other calls.
    pub(crate) left_out: usize,
    pub(crate) outcome: Option<OutcomeLine>,
    /// Arrival to the head of the answer.
    pub(crate) head: Option<Duration>,
    /// Dispatch to a connection of the worker that answers.
    pub(crate) connect: Option<Duration>,
    /// Code of the router's own refusal.
    pub(crate) error_code: Option<&'static str>,
    pub(crate) response: ResponseNote,
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
pub(crate) struct ResponseNote {
    pub(crate) status: Option<u16>,
    pub(crate) worker: Option<Box<str>>,
    pub(crate) prefill: Option<Box<str>>,
    pub(crate) matched: Option<u32>,
    pub(crate) first_token: Option<Duration>,
    prompt: Option<u64>,
    cached: Option<u64>,
    output: Option<u64>,
    events: Option<u64>,
}

impl Trace {
    /// Creates the record of a request, without calls.
    pub(crate) fn new(
        sink: Weak<dyn TraceSink>,
        request: RequestNote,
        rules: TraceRules,
        share: MemoryShare,
    ) -> Self {
        let TraceRules {
            kept,
            all_columns,
            blocks,
        } = rules;
        Self {
            sink,
            kept,
            all_columns,
            request,
            blocks,
            progress: Mutex::default(),
            _share: share,
        }
    }

    /// Returns whether all known columns are recorded.
    #[must_use]
    pub fn all_columns(&self) -> bool {
        self.all_columns
    }

    /// Returns whether the admin page explains the request.
    #[must_use]
    pub fn is_explained(&self) -> bool {
        self.kept.in_memory
    }

    /// Records a call of a policy or of the fallback.
    pub fn called(self: &Arc<Self>, call: CallNote) {
        let Some(sink) = self.sink.upgrade() else {
            return;
        };
        let Some(share) = sink.reserve(Record::bytes(&call)) else {
            self.progress().left_out += 1;
            return;
        };
        let record = Arc::new(Record { call, _share: share });
        if self.kept.in_memory {
            let mut progress = self.progress();
            if progress.calls.len() == MAX_CALLS {
                progress.calls.remove(MAX_CALLS / 2);
                progress.left_out += 1;
            }
            progress.calls.push(Arc::clone(&record));
        }
        if self.kept.in_file {
            sink.write_call(self, record);
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
        let after = self.request.start.arrived.elapsed();
        let mut progress = self.progress();
        progress.head = Some(after);
        progress.response.status = Some(status);
    }

    /// Records the time from the dispatch to a connection of the worker that answers.
    pub fn connected(&self, took: Duration) {
        self.progress().connect = Some(took);
    }

    /// Records the router's own refusal.
    pub fn refused(&self, status: u16, code: &'static str) {
        let mut progress = self.progress();
        progress.response.status = Some(status);
        progress.error_code = Some(code);
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
        if let Some(sink) = self.sink.upgrade().filter(|_| self.kept.in_file) {
            sink.write_outcome(self);
        }
    }

    fn outcome_line(&self, outcome: &str, after: Duration) -> OutcomeLine {
        let response = std::mem::take(&mut self.progress().response);
        OutcomeLine {
            request: self.request.id.clone(),
            seq: self.request.seq,
            unix_us: unix_us(SystemTime::now()),
            outcome: outcome.to_owned(),
            status: response.status,
            worker: response.worker.map(String::from),
            prefill: response.prefill.map(String::from),
            ttft_ms: response.first_token.map(milliseconds),
            duration_ms: milliseconds(after),
            prompt_tokens: self
                .request
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
