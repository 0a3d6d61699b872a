//! Scheduler part of prefill/decode disaggregation: blocks kept for another engine after a prompt's answer, and
//! sequences that hold blocks while their KV cache is in transit. Independent of handshakes and network.

use std::collections::{HashSet, VecDeque};

use tokio::sync::mpsc;

use super::Scheduler;
use crate::event::CacheEvent;
use crate::sequence::{Finish, Output, Sequence};
use crate::transfer::{KeptBlocks, Received, Reserved, Transfer};

impl Scheduler {
    /// Ends a sequence after its last token. Its blocks are freed, unless another engine fetches them.
    pub(super) fn end(&mut self, mut sequence: Sequence) {
        if sequence.client_left() {
            self.stats.cancelled += 1;
            return self.cache.release(&sequence.blocks);
        }
        self.stats.completed += 1;
        let keep = match sequence.transfer.take() {
            Some(Transfer::Keep(keep)) if keep.after_stop || sequence.finish() == Finish::Length => keep,
            _ => return self.cache.release(&sequence.blocks),
        };
        let kept = KeptBlocks {
            blocks: sequence.blocks.clone(),
            cached_tokens: sequence.cached_tokens.unwrap_or_default(),
        };
        if keep.kept.send(kept).is_ok() {
            self.kept.insert(keep.id, sequence.blocks);
        } else {
            self.cache.release(&sequence.blocks);
        }
    }

    /// Returns the number of kept blocks; shared ones count once.
    pub(super) fn pinned_blocks(&self) -> u64 {
        let blocks: HashSet<_> = self.kept.values().flatten().collect();
        blocks.len() as u64
    }

    /// Returns the number of unfinished sequences whose clients have disconnected.
    pub(super) fn abandoned(&self) -> u64 {
        let queued = self.waiting.iter().chain(&self.receiving).chain(&self.arrived);
        let all = queued.chain(&self.decoding).chain(&self.prefilling);
        all.filter(|sequence| sequence.client_left()).count() as u64
    }

    /// Frees kept blocks. Unknown ids are from before a restart.
    pub(crate) fn release_kept(&mut self, id: u64) {
        if let Some(blocks) = self.kept.remove(&id) {
            self.cache.release(&blocks);
        }
    }

    /// Sets a sequence aside that has blocks and waits for their contents; returns any other.
    pub(super) fn receive(&mut self, mut sequence: Sequence) -> Option<Sequence> {
        let missing = sequence.to_receive().saturating_sub(sequence.computed);
        if missing == 0 {
            // Nothing is to be received, or all of it is cached.
            sequence
                .transfer
                .take_if(|transfer| matches!(transfer, Transfer::Receive(_)));
            return Some(sequence);
        }
        if let Some(Transfer::Receive(receive)) = &mut sequence.transfer
            && let Some(reserved) = receive.reserved.take()
        {
            // Fails only if the fetch was given up: then the sequence waits forever, as in real engines.
            let _ = reserved.send(Reserved::Missing(missing));
        }
        self.receiving.push(sequence);
        None
    }

    /// Handles the arrival or the failure of the KV cache of a sequence. Returns tokens to deliver at once.
    pub(crate) fn received(
        &mut self,
        id: u64,
        received: Option<Received>,
    ) -> Option<(mpsc::Sender<Output>, Output)> {
        let waits = |sequence: &Sequence| match &sequence.transfer {
            Some(Transfer::Receive(receive)) => receive.id == id,
            _ => false,
        };
        let at = self.receiving.iter().position(waits)?;
        let mut sequence = self.receiving.swap_remove(at);
        let tokens = sequence.to_receive();
        sequence.transfer = None;
        let Some(received) = received else {
            self.cache.release(&sequence.blocks);
            if sequence.client_left() {
                self.stats.cancelled += 1;
            } else {
                self.stats.failed += 1;
            }
            return Some(sequence.fail());
        };
        self.fill_received(&mut sequence, tokens);
        let found = u32::try_from(tokens).unwrap_or(u32::MAX);
        sequence.cached_tokens = Some(received.cached_tokens.unwrap_or(found));
        self.arrived.push_back(sequence);
        None
    }

    /// Marks received full blocks as findable; the next step announces them.
    fn fill_received(&mut self, sequence: &mut Sequence, tokens: usize) {
        let (known, full) = (sequence.announced, tokens / self.limits.block_size);
        if full > known {
            for block in known..full {
                self.cache.fill(sequence.blocks[block], sequence.hashes[block]);
            }
            let stored = sequence.stored(known, full, self.limits.block_size);
            self.pending.push(CacheEvent::Stored(stored));
            sequence.announced = full;
        }
        // The last token is always computed: its output is the first token of the answer.
        sequence.computed = tokens.min(sequence.tokens.len() - 1);
    }

    /// Resumes sequences whose KV cache has arrived: in the next decode step if only the last token is left to
    /// compute, else in the prefill.
    pub(super) fn resume_arrived(&mut self) {
        while let Some(sequence) = self.arrived.front() {
            let decodes = sequence.computed + 1 == sequence.tokens.len();
            if self.decoding.len() >= self.limits.running || !decodes && self.prefilling.is_some() {
                return;
            }
            match self.arrived.pop_front() {
                Some(sequence) if decodes => self.decoding.push(sequence),
                sequence => self.prefilling = sequence,
            }
        }
    }

    /// Removes queued requests of disconnected clients; returns their number.
    pub(super) fn drop_waiting(&mut self) -> usize {
        if !self.waiting.iter().any(Sequence::client_left) {
            return 0;
        }
        let (left, stay): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(Sequence::client_left);
        self.waiting = stay;
        let dropped = left.len();
        for sequence in left {
            if let Some(Transfer::Receive(receive)) = sequence.transfer
                && let Some(reserved) = receive.reserved
            {
                let _ = reserved.send(Reserved::Abandoned);
            }
        }
        dropped
    }

    /// Removes sequences of disconnected clients: all whose KV cache has arrived, and those whose engine does not wait
    /// for the arrival.
    pub(super) fn drop_unreceived(&mut self) -> Vec<Sequence> {
        let gives_up = |sequence: &Sequence| match &sequence.transfer {
            Some(Transfer::Receive(receive)) => !receive.outlives_client,
            _ => true,
        };
        let receiving = self
            .receiving
            .extract_if(.., |sequence| sequence.client_left() && gives_up(sequence));
        let mut dropped: Vec<_> = receiving.collect();
        let (left, stay) = std::mem::take(&mut self.arrived)
            .into_iter()
            .partition(Sequence::client_left);
        self.arrived = stay;
        dropped.extend::<VecDeque<_>>(left);
        dropped
    }
}
