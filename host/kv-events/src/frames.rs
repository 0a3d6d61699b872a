//! Frames around a payload, live and replayed.
//!
//! Live: `[topic, sequence, payload]`. Replayed, as received by a DEALER: `["", sequence, payload]` (vLLM to 0.25,
//! SGLang to 0.5.6) or `["", topic, sequence, payload]` (later). A sequence of -1 with an empty payload ends the
//! replay. Frames are located from the end of the list, so one rule reads every form.

use std::ops::Deref;

/// Payload with its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequencedPayload<'a> {
    /// Number of the publisher's batch. Each start of the publisher counts from 0 (Mooncake's store: from 1).
    pub sequence: u64,
    /// Input of [`decode_batch`](crate::decode_batch).
    pub payload: &'a [u8],
}

/// One message of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayPart<'a> {
    /// A batch that the publisher still has.
    Batch(SequencedPayload<'a>),
    /// End of the replay.
    End,
}

/// Error of a message's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Unexpected number of frames.
    #[error("message of {0} frames is no event message")]
    Count(usize),
    /// The second-last frame is not a number of 8 bytes.
    #[error("sequence frame has {0} bytes instead of 8")]
    SequenceLength(usize),
    /// A live message has the number -1, which only ends replays.
    #[error("live message has the sequence number of a replay's end")]
    EndOutsideReplay,
}

/// -1, as publishers send it.
const END: u64 = u64::MAX;

/// Reads a message of the SUB socket.
///
/// # Errors
/// Returns an error if it is not `[topic, sequence, payload]`.
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

/// Reads a message of the DEALER socket that requested a replay.
///
/// # Errors
/// Returns an error if it has neither 3 nor 4 frames.
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
