//! One recorded request: its calls as they are made, and how it ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use http::StatusCode;
use inference_api::Tail;

use super::call_note::{CallNote, cut, unix_us};
use super::line::OutcomeLine;
use super::note_line::Bytes;
use super::number::Number;
use super::prompt_blocks::PromptBlocks;
use super::recorder::Recorder;
use super::room::Taken;
use super::spec::Kept;
use super::writer::Message;
use crate::context::{HashedPrompt, RequestContext};
use crate::label::{OUTCOMES, Outcome};

/// Longest id and model that are kept, in bytes: clients choose them.
pub(super) const LONGEST_ID: usize = 128;
const LONGEST_MODEL: usize = 256;
/// Most calls of one request that are kept in memory; a request that is held is decided again and again.
const MOST_CALLS: usize = 32;

/// About as many bytes as the names take that a request's ending comes with.
const ENDING: usize = 512;

/// A request that is recorded.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Gone only with the router.
    recorder: Weak<Recorder>,
    pub(super) kept: Kept,
    /// Whether all columns are recorded.
    pub(crate) all_columns: bool,
    pub(super) id: String,
    pub(super) seq: u64,
    pub(super) model: String,
    pub(super) path: Box<str>,
    pub(super) pool: Box<str>,
    /// Counted from 1.
    pub(super) route: usize,
    prompt_tokens: Option<u32>,
    /// Where the file wants them.
    blocks: Option<PromptBlocks>,
    story: Mutex<Story>,
    _room: Taken,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// Where it is kept in memory.
    pub(super) calls: Vec<Arc<Record>>,
    /// Calls that are not among them.
    pub(super) left_out: usize,
    pub(super) outcome: Option<OutcomeLine>,
    answer: AnswerNote,
}

/// A call that is kept, with the memory it was given.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) call: CallNote,
    pub(super) _room: Taken,
}

impl Record {
    /// Bytes that a call takes once it is kept, with its place in a list and in the queue.
    fn bytes(call: &CallNote) -> usize {
        call.bytes() + size_of::<Self>() - size_of::<CallNote>() + 2 * size_of::<Message>()
    }
}

/// What is known of the answer until it ends.
#[derive(Debug, Default)]
struct AnswerNote {
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
    /// Begins the record of a request, where it is one of those that are recorded.
    pub(crate) fn begin(request: &RequestContext) -> Option<Arc<Self>> {
        let spec = &request.snapshot.record;
        let kept = spec.choose(request.seq, &request.headers)?;
        let id = String::from_utf8_lossy(request.id.as_bytes());
        let (id, model) = (cut(&id, LONGEST_ID), cut(&request.model, LONGEST_MODEL));
        let blocks = spec
            .prompt_blocks
            .filter(|_| kept.in_file)
            .zip(request.prompt.as_ref());
        let blocks = blocks.map(|(tokens, prompt)| PromptBlocks::of(prompt, tokens));
        let hashes = blocks.as_ref().map_or(0, |blocks| blocks.hashes.len());
        let bytes = size_of::<Self>() + 2 * id.len() + model.len() + hashes + ENDING;
        let room = spec.recorder.room_for(bytes)?;
        let prompt = request.prompt.as_ref().map(HashedPrompt::tokens);
        let trace = Arc::new(Self {
            recorder: Arc::downgrade(&spec.recorder),
            kept,
            all_columns: spec.all_columns,
            id: id.into_owned(),
            seq: request.seq,
            model: model.into_owned(),
            path: request.target.path().into(),
            pool: request.pool().name.clone(),
            route: request.route + 1,
            prompt_tokens: prompt.and_then(|tokens| u32::try_from(tokens).ok()),
            blocks,
            story: Mutex::default(),
            _room: room,
        });
        if kept.in_memory {
            spec.recorder.remember(&trace, spec.explained);
        }
        Some(trace)
    }

    /// A policy, or the fallback, was asked.
    pub(crate) fn called(self: &Arc<Self>, call: CallNote) {
        let Some(recorder) = self.recorder.upgrade() else {
            return;
        };
        let Some(room) = recorder.room_for(Record::bytes(&call)) else {
            self.story().left_out += 1;
            return;
        };
        let record = Arc::new(Record { call, _room: room });
        if self.kept.in_memory {
            let mut story = self.story();
            if story.calls.len() < MOST_CALLS {
                story.calls.push(Arc::clone(&record));
            } else {
                story.left_out += 1;
            }
        }
        if self.kept.in_file {
            recorder.write_call(self, record);
        }
    }

    /// A worker's answer begins.
    pub(crate) fn answers(&self, worker: &str, prefill: Option<&str>, matched: Option<u32>) {
        let answer = &mut self.story().answer;
        answer.worker = Some(worker.into());
        answer.prefill = prefill.map(Into::into);
        answer.matched = matched;
    }

    /// The client is answered with that status.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.story().answer.status = Some(status.as_u16());
    }

    /// The first byte of a streamed answer came, so long after the request.
    pub(crate) fn first_token(&self, after: Duration) {
        self.story().answer.first_token = Some(after);
    }

    /// The answer was read to its end.
    pub(crate) fn read(&self, tail: &Tail) {
        let answer = &mut self.story().answer;
        answer.prompt = tail.prompt_tokens();
        answer.cached = tail.cached_tokens();
        answer.output = tail.output_tokens();
        answer.events = Some(tail.events()).filter(|events| *events > 0 && answer.output.is_none());
    }

    /// It is over, so long after it came.
    pub(crate) fn ended(self: &Arc<Self>, outcome: Outcome, after: Duration) {
        let line = self.outcome_line(outcome, after);
        self.story().outcome = Some(line);
        if let Some(recorder) = self.recorder.upgrade().filter(|_| self.kept.in_file) {
            recorder.write_outcome(self);
        }
    }

    fn outcome_line(&self, outcome: Outcome, after: Duration) -> OutcomeLine {
        let answer = std::mem::take(&mut self.story().answer);
        OutcomeLine {
            request: self.id.clone(),
            seq: self.seq,
            unix_us: unix_us(SystemTime::now()),
            outcome: OUTCOMES[outcome as usize].1.to_owned(),
            status: answer.status,
            worker: answer.worker.map(String::from),
            prefill: answer.prefill.map(String::from),
            ttft_ms: answer.first_token.map(milliseconds),
            duration_ms: milliseconds(after),
            prompt_tokens: self.prompt_tokens.or_else(|| u32::try_from(answer.prompt?).ok()),
            matched_tokens: answer.matched,
            cached_tokens: answer.cached,
            output_tokens: answer.output,
            answer_events: answer.events,
            block_tokens: None,
            blocks: None,
        }
    }

    /// How it ended, as the file has it: with the prompt's blocks, which nobody else is shown.
    pub(super) fn written_outcome(&self) -> Option<OutcomeLine> {
        let outcome = self.story().outcome.clone()?;
        let blocks = self.blocks.as_ref();
        Some(OutcomeLine {
            block_tokens: blocks.map(|blocks| blocks.block_tokens.get()),
            blocks: blocks.map(|blocks| Bytes(blocks.hashes.to_vec())),
            ..outcome
        })
    }

    pub(super) fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> Number {
    Number(time.as_micros() as f64 / 1e3)
}
