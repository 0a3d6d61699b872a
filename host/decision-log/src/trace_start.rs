//! Start of a request's record, where the rules select the request.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::prompt_blocks::PromptBlocks;
use crate::request_note::{RequestNote, StartTimes};
use crate::selection::RecordSpec;
use crate::text::{MAX_ID, cut};
use crate::trace::{Trace, TraceRules, TraceSink};

/// Maximum recorded length of a model name in bytes. Clients choose it.
const MAX_MODEL: usize = 256;

/// Estimated size of the names in an outcome, in bytes.
const ENDING: usize = 512;

/// Facts about a request at the start of its record.
#[derive(Debug)]
pub struct TraceStart<'a> {
    /// Sequence number.
    pub seq: u64,
    /// Request id, as received.
    pub id: &'a [u8],
    /// Set if the client requests an explanation.
    pub is_explained: bool,
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
    /// Arrival of the head.
    pub arrived: Instant,
    /// Duration of the tokenization, if there was one.
    pub tokens_took: Option<Duration>,
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
        let kept = spec.choose(start.seq, start.is_explained)?;
        let id = String::from_utf8_lossy(start.id);
        let (id, model) = (cut(&id, MAX_ID), cut(start.model, MAX_MODEL));
        let blocks = spec.prompt_blocks.filter(|_| kept.in_file).and_then(blocks);
        let hashes = blocks.as_ref().map_or(0, |blocks| blocks.hashes.len());
        let bytes = size_of::<Self>() + 2 * id.len() + model.len() + hashes + ENDING;
        let share = spec.recorder.reserve(bytes)?;
        let request = RequestNote {
            id: id.into_owned(),
            seq: start.seq,
            model: model.into_owned(),
            path: start.path.into(),
            pool: start.pool.into(),
            route: start.route + 1,
            prompt_tokens: start.prompt_tokens.and_then(|tokens| u32::try_from(tokens).ok()),
            start: StartTimes::since(start.arrived, start.tokens_took),
        };
        let rules = TraceRules {
            kept,
            all_columns: spec.all_columns,
            blocks,
        };
        let sink = Arc::downgrade(&spec.recorder);
        let trace = Arc::new(Self::new(sink, request, rules, share));
        if kept.in_memory {
            spec.recorder.remember(&trace, spec.explained);
        }
        Some(trace)
    }
}
