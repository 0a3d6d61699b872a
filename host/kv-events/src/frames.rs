//! The frames around a payload, live and replayed.
//!
//! Live: `[topic, sequence, payload]`. Replayed, as a DEALER sees it: `["", sequence, payload]` (vLLM to 0.25, SGLang to
//! 0.5.6) or `["", topic, sequence, payload]` (later), closed by a sequence of -1 and an empty payload. Both are found
//! from the end of the list, so that one rule reads every form.

use std::ops::Deref;

/// A payload and its place in the publisher's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequencedPayload<'a> {
    /// Counts the publisher's batches from 0 (Mooncake's store: from 1), anew with each of its starts.
    pub sequence: u64,
    /// What [`decode_batch`](crate::decode_batch) takes.
    pub payload: &'a [u8],
}

/// One message of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayPart<'a> {
    /// A batch the publisher still had.
    Batch(SequencedPayload<'a>),
    /// There are no more.
    End,
}

/// Why frames are not a message of the event wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A number of frames no publisher sends.
    #[error("message of {0} frames is no event message")]
    Count(usize),
    /// The frame before the last is not a number of 8 bytes.
    #[error("sequence frame has {0} bytes instead of 8")]
    SequenceLength(usize),
    /// Only a replay ends; a live message never has the number -1.
    #[error("live message has the sequence number of a replay's end")]
    EndOutsideReplay,
}

/// -1 as the publishers send it.
const END: u64 = u64::MAX;

/// Reads a message of the SUB socket.
///
/// # Errors
/// Where it is not `[topic, sequence, payload]`.
pub fn live_message<F: Deref<Target = [u8]>>(frames: &[F]) -> Result<SequencedPayload<'_>, FrameError> {
    if frames.len() != 3 {
        return Err(FrameError::Count(frames.len()));
    }
    let message = from_the_end(frames)?;
    if message.sequence == END {
        Err(FrameError::EndOutsideReplay)
    } else {
        Ok(message)
    }
}

/// Reads a message of the DEALER socket that asked for a replay.
///
/// # Errors
/// Where it has neither the form of 3 nor that of 4 frames.
pub fn replay_part<F: Deref<Target = [u8]>>(frames: &[F]) -> Result<ReplayPart<'_>, FrameError> {
    if !matches!(frames.len(), 3 | 4) {
        return Err(FrameError::Count(frames.len()));
    }
    let message = from_the_end(frames)?;
    Ok(if message.sequence == END {
        ReplayPart::End
    } else {
        ReplayPart::Batch(message)
    })
}

fn from_the_end<F: Deref<Target = [u8]>>(frames: &[F]) -> Result<SequencedPayload<'_>, FrameError> {
    let [.., sequence, payload] = frames else {
        return Err(FrameError::Count(frames.len()));
    };
    let number: &[u8; 8] = sequence
        .as_ref()
        .try_into()
        .map_err(|_| FrameError::SequenceLength(sequence.len()))?;
    Ok(SequencedPayload {
        sequence: u64::from_be_bytes(*number),
        payload,
    })
}
