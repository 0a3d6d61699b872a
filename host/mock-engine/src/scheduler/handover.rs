//! The scheduler's share of prefill/decode disaggregation: blocks kept for another engine after a prompt's answer
//! ended, and sequences that hold blocks while their KV cache is on its way. Knows no handshake and no network.

use std::collections::{HashSet, VecDeque};

use tokio::sync::mpsc;

use super::Scheduler;
use crate::event::CacheEvent;
use crate::sequence::{Finish, Output, Sequence};
use crate::transfer::{Kept, Received, Reserved, Transfer};

impl Scheduler {
    /// A sequence has its last token: its blocks are free, unless another engine is to fetch them.
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
        let kept = Kept {
            blocks: sequence.blocks.clone(),
            cached_tokens: sequence.cached_tokens.unwrap_or_default(),
        };
        if keep.kept.send(kept).is_ok() {
            self.kept.insert(keep.id, sequence.blocks);
        } else {
            self.cache.release(&sequence.blocks);
        }
    }

    /// Blocks kept now, shared ones counted once.
    pub(super) fn pinned_blocks(&self) -> u64 {
        let blocks: HashSet<_> = self.kept.values().flatten().collect();
        blocks.len() as u64
    }

    /// Nobody fetches these blocks any more. Unknown ones are from before a restart.
    pub(crate) fn release_kept(&mut self, id: u64) {
        if let Some(blocks) = self.kept.remove(&id) {
            self.cache.release(&blocks);
        }
    }

    /// Sets a sequence aside that has blocks and waits for what goes in them; answers any other.
    pub(super) fn receive(&mut self, mut sequence: Sequence) -> Option<Sequence> {
        let missing = sequence.to_receive().saturating_sub(sequence.computed);
        if missing == 0 {
            // Either nothing is to come, or all of it was here already.
            sequence
                .transfer
                .take_if(|transfer| matches!(transfer, Transfer::Receive(_)));
            return Some(sequence);
        }
        if let Some(Transfer::Receive(receive)) = &mut sequence.transfer
            && let Some(reserved) = receive.reserved.take()
        {
            // Fails only where nobody fetches anything any more: then it waits for good, as real engines do.
            let _ = reserved.send(Reserved::Missing(missing));
        }
        self.receiving.push(sequence);
        None
    }

    /// The KV cache a sequence waited for has come, or will not. Answers what is to be delivered at once.
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

    /// The blocks that came full can be found, and are announced with the next step.
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

    /// Lets those go on whose KV cache has come: to the next decode step where only the last token is left to
    /// compute, else to the prefill.
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

    /// Takes those out of the queue whose client left, and answers how many they were.
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

    /// Takes out those whose client left: all whose KV cache has come, and of the others those whose engine does
    /// not wait for it to come anyway.
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
