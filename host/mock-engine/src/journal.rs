//! Replay buffer: published batches by number, and the messages of a replay.

use std::collections::VecDeque;

use crate::config::{MockConfig, ReplayForm};
use crate::event::CacheEvent;
use crate::event_wire::EventWire;
use crate::fault_script::BatchLoss;

/// Batches by number.
pub(crate) struct Journal {
    wire: EventWire,
    replay_form: ReplayForm,
    topic: Vec<u8>,
    /// Most batches kept.
    limit: usize,
    next: u64,
    kept: VecDeque<(u64, Vec<u8>)>,
}

impl Journal {
    pub(crate) fn new(config: &MockConfig) -> Self {
        Self {
            wire: EventWire::new(config),
            replay_form: config.replay_form,
            topic: config.topic.clone().into_bytes(),
            limit: config.replay_batches,
            next: 0,
            kept: VecDeque::new(),
        }
    }

    /// Returns the first frame of every message.
    pub(crate) fn topic(&self) -> &[u8] {
        &self.topic
    }

    /// Restarts the numbers and clears the buffer.
    pub(crate) fn restart(&mut self) {
        self.next = 0;
        self.kept.clear();
    }

    /// Encodes a batch, and keeps it unless it is to be lost everywhere.
    pub(crate) fn number(
        &mut self,
        ts: f64,
        events: &[CacheEvent],
        loss: Option<BatchLoss>,
    ) -> (u64, Vec<u8>) {
        let payload = self.wire.batch(ts, events);
        let seq = self.next;
        self.next += 1;
        if loss != Some(BatchLoss::Everywhere) {
            if self.kept.len() == self.limit {
                self.kept.pop_front();
            }
            self.kept.push_back((seq, payload.clone()));
        }
        (seq, payload)
    }

    /// Returns all messages of a replay from `start` on, as received by a DEALER: the kept batches, then the end
    /// marker.
    pub(crate) fn replay(&self, start: u64) -> impl Iterator<Item = Vec<Vec<u8>>> {
        let kept = self.kept.iter().filter(move |(seq, _)| *seq >= start);
        let batches = kept.map(|(seq, payload)| self.reply(&self.topic, seq.to_be_bytes(), payload));
        let end = self.reply(b"", (-1_i64).to_be_bytes(), b"");
        batches.chain(std::iter::once(end))
    }

    fn reply(&self, topic: &[u8], seq: [u8; 8], payload: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = vec![Vec::new()];
        if self.replay_form == ReplayForm::FourFrames {
            frames.push(topic.to_vec());
        }
        frames.extend([seq.to_vec(), payload.to_vec()]);
        frames
    }
}

/// Returns the number in the last frame of a replay request: big endian, of any length, saturating.
pub(crate) fn replay_start(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number: u64, &byte| {
        number
            .checked_mul(256)
            .map_or(u64::MAX, |shifted| shifted | u64::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(replay_batches: usize, replay_form: ReplayForm) -> Journal {
        Journal::new(&MockConfig {
            replay_batches,
            replay_form,
            topic: "kv".to_owned(),
            ..MockConfig::default()
        })
    }

    fn seqs(journal: &Journal, start: u64) -> Vec<i64> {
        let seq =
            |frames: Vec<Vec<u8>>| i64::from_be_bytes(frames[1].as_slice().try_into().expect("8 bytes"));
        journal.replay(start).map(seq).collect()
    }

    #[test]
    fn a_replay_has_what_is_kept_from_the_start_on_and_an_end() {
        let mut journal = journal(2, ReplayForm::ThreeFrames);
        for loss in [None, None, Some(BatchLoss::OnWire), Some(BatchLoss::Everywhere)] {
            journal.number(0.0, &[CacheEvent::Cleared], loss);
        }
        assert_eq!(seqs(&journal, 0), [1, 2, -1]);
        assert_eq!(seqs(&journal, 2), [2, -1]);
        assert_eq!(seqs(&journal, 9), [-1]);
        assert_eq!(journal.number(0.0, &[], None).0, 4);
        journal.restart();
        assert_eq!(seqs(&journal, 0), [-1]);
        assert_eq!(journal.number(0.0, &[], None).0, 0);
    }

    #[test]
    fn newer_replays_carry_the_topic() {
        let mut journal = journal(9, ReplayForm::FourFrames);
        let (_, payload) = journal.number(0.0, &[], None);
        let replies: Vec<_> = journal.replay(0).collect();
        assert_eq!(replies[0], [&b""[..], b"kv", &[0; 8], &payload]);
        assert_eq!(replies[1], [&b""[..], b"", &[0xff; 8], b""]);
    }

    #[test]
    fn a_start_may_have_any_length() {
        assert_eq!(replay_start(&[]), 0);
        assert_eq!(replay_start(&[1, 0]), 256);
        assert_eq!(replay_start(&[1; 9]), u64::MAX);
    }
}
