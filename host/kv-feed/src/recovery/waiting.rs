//! Live messages that wait for a replay, within bounds.

use std::collections::VecDeque;
use std::ops::Deref;

/// Messages that wait. Further ones are dropped, to be asked for when the replay has ended.
pub(super) const MAX_WAITING: usize = 4096;
/// Bytes of them.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// In the order they came.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    messages: VecDeque<(u64, P)>,
    bytes: usize,
}

impl<P: Deref<Target = [u8]>> Waiting<P> {
    pub(super) fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The number of the first that waits.
    pub(super) fn first(&self) -> Option<u64> {
        self.messages.front().map(|&(sequence, _)| sequence)
    }

    pub(super) fn push(&mut self, sequence: u64, payload: P) {
        let bytes = self.bytes.saturating_add(payload.len());
        if self.messages.len() < MAX_WAITING && bytes <= MAX_WAITING_BYTES {
            self.bytes = bytes;
            self.messages.push_back((sequence, payload));
        }
    }

    pub(super) fn pop(&mut self) -> Option<(u64, P)> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.1.len();
        Some(message)
    }

    /// Puts back what was popped last.
    pub(super) fn put_back(&mut self, sequence: u64, payload: P) {
        self.bytes += payload.len();
        self.messages.push_front((sequence, payload));
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}
