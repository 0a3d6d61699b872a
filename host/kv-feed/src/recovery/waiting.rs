//! Bounded queue of live messages during a replay.

use std::collections::VecDeque;
use std::ops::Deref;

/// Most queued messages. Further ones are dropped, and requested after the replay.
pub(super) const MAX_WAITING: usize = 4096;
/// Most queued bytes.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// Messages in the order of arrival.
#[derive(Debug)]
pub(super) struct WaitingMessages<P> {
    messages: VecDeque<(u64, P)>,
    bytes: usize,
}

impl<P: Deref<Target = [u8]>> WaitingMessages<P> {
    pub(super) fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the number of the first message.
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

    /// Puts back the message popped last.
    pub(super) fn put_back(&mut self, sequence: u64, payload: P) {
        self.bytes += payload.len();
        self.messages.push_front((sequence, payload));
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}
