//! Speculative inserts: blocks predicted at a worker because a request was just sent there.
//!
//! For workers without events, predictions are all that the index has. They are kept in two generations. A request's
//! blocks go into the current one. Ageing drops the previous generation and makes the current one previous. A block
//! is therefore predicted for one to two ages after its last request. The generations age early once the current one
//! has half of the worker's capacity, or would exceed the capacity. Blocks of a prompt beyond the capacity are not
//! predicted.
//!
//! A long prompt is inserted in parts, and other changes come between them. A part continues at the last block of the
//! one before, if that is still predicted. Else it begins at the prompt's first block.
//!
//! Events confirm predictions: a stored block is held by its own lane, and a removed or cleared block is no longer
//! predicted. A prediction is taken back where the worker did not get the prompt after all. Other wrong predictions
//! expire with their generation.

use routing::WorkerId;

use crate::core::IndexCore;
use crate::count::PART;
use crate::forest::{BlockPosition, NewBlock};
use crate::hold::RunSpan;
use crate::lanes::LaneId;
use crate::prompt::Prompt;

/// Predictions for one worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerPredictions {
    pub(crate) block_size: u32,
    pub(crate) current: Option<LaneId>,
    pub(crate) previous: Option<LaneId>,
}

/// A request sent to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The worker.
    pub worker: WorkerId,
    /// Block size in tokens, if the index does not know it from events. With 0 nothing is predicted then.
    pub block_size: u32,
    /// Blocks that the worker's cache holds: most blocks of a generation of predictions.
    pub capacity: u64,
}

/// Prediction of a prompt's blocks at a worker.
#[derive(Debug, Clone, Copy)]
pub struct Prediction {
    /// The worker.
    pub worker: WorkerId,
    lane: LaneId,
    block_size: u32,
    /// Number of the predicted blocks.
    blocks: usize,
    /// Number of those at the end that were not predicted before.
    added: usize,
}

/// Progress of a prompt's prediction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PredictionProgress {
    block_size: u32,
    /// Number of the predicted blocks.
    blocks: usize,
    /// Number of those that were not predicted before.
    added: u64,
    /// Lane of their generation, and the last of them.
    last: Option<(LaneId, BlockPosition)>,
}

impl PredictionProgress {
    /// Returns the prediction, once it is complete.
    pub(crate) fn prediction(self, worker: WorkerId) -> Option<Prediction> {
        let (lane, _) = self.last?;
        let added = usize::try_from(self.added).unwrap_or(usize::MAX);
        Some(Prediction {
            worker,
            lane,
            block_size: self.block_size,
            blocks: self.blocks,
            added: added.min(self.blocks),
        })
    }
}

impl WorkerPredictions {
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        self.current.into_iter().chain(self.previous)
    }
}

impl IndexCore {
    /// Returns a worker's block size in tokens, as known from events or predictions.
    pub(crate) fn block_size(&self, worker: WorkerId) -> Option<u32> {
        Some(self.rows.get(worker).block_size).filter(|&size| size > 0)
    }

    /// Inserts the next blocks of a prompt at a worker. Returns `false` at the end.
    pub(crate) fn expect(
        &mut self,
        sent: &Sent,
        prompt: &mut Prompt<'_>,
        progress: &mut PredictionProgress,
    ) -> bool {
        let known = self
            .caches
            .ranks(sent.worker)
            .find(|(_, cache)| !cache.lanes.is_empty());
        let block_size = known.map_or(sent.block_size, |(_, cache)| cache.base);
        let most = usize::try_from(sent.capacity).unwrap_or(usize::MAX);
        let blocks = prompt.blocks(block_size).min(most);
        let to = (progress.blocks + PART).min(blocks);
        if block_size == 0 || progress.blocks >= to {
            return false;
        }
        let begun = progress.last.map(|(lane, _)| lane);
        let lane = self.expecting_lane(sent, block_size, blocks as u64, begun);
        let hashes = prompt.hashes(block_size, to);
        let before = self.last_predicted(lane, progress, hashes);
        let from = before.map_or(0, |_| progress.blocks);
        let held = self.lanes[lane.0 as usize].held;
        let last = self.expect_part(lane, before, &hashes[from..to]);
        let added = self.lanes[lane.0 as usize].held.saturating_sub(held);
        self.gc_step(2);
        *progress = PredictionProgress {
            block_size,
            blocks: to,
            added: progress.added + added,
            last: last.map(|last| (lane, last)),
        };
        last.is_some() && to < blocks
    }

    /// Removes the last blocks of a prediction that it added, up to [`PART`] of them. Returns `false` at the end.
    pub(crate) fn retract(&mut self, prediction: &mut Prediction, prompt: &mut Prompt<'_>) -> bool {
        let Prediction {
            lane,
            block_size,
            blocks,
            added,
            ..
        } = *prediction;
        let is_kept = self.expected.get(&prediction.worker).is_some_and(|known| {
            known.block_size == block_size && known.lanes().any(|generation| generation == lane)
        });
        let part = added.min(PART);
        let from = blocks - part;
        if !is_kept || part == 0 {
            return false;
        }
        let hashes = prompt.hashes(block_size, blocks);
        let (mut at, mut before) = (0, None);
        while at < hashes.len()
            && let Some(place) = self.find(before, hashes[at], NewBlock::default())
        {
            let run = self.forest.run(place.run);
            let most = ((run.len - place.at) as usize).min(hashes.len() - at);
            let known = self.forest.common(run, place.at, &hashes[at..at + most]);
            let kept = u32::try_from(from.saturating_sub(at)).unwrap_or(u32::MAX);
            let block = |offset| BlockPosition {
                run: place.run,
                at: place.at + offset,
            };
            // From the end of the run: its coverage stays a prefix.
            (kept.min(known)..known)
                .rev()
                .for_each(|offset| self.uncover(lane, block(offset)));
            before = known.checked_sub(1).map(block);
            at += known.max(1) as usize;
        }
        prediction.blocks = from;
        prediction.added = added - part;
        prediction.added > 0
    }

    /// Returns the last block of the earlier parts, if it is where it was and the lane still has it.
    fn last_predicted(
        &self,
        lane: LaneId,
        progress: &PredictionProgress,
        hashes: &[u64],
    ) -> Option<BlockPosition> {
        let (_, place) = progress.last.filter(|(begun, _)| *begun == lane)?;
        let run = self.forest.runs().find(place.run)?;
        let is_it =
            run.covers(lane, place.at) && self.forest.content(run, place.at) == hashes[progress.blocks - 1];
        is_it.then_some(place)
    }

    /// Adds blocks with these contents to a lane, after the block `before`. Returns the last of them; `None` if there
    /// is no room for all.
    fn expect_part(
        &mut self,
        lane: LaneId,
        mut before: Option<BlockPosition>,
        hashes: &[u64],
    ) -> Option<BlockPosition> {
        let mut span: Option<RunSpan> = None;
        let mut at = 0;
        while at < hashes.len() {
            let Ok(place) = self.find_or_add(before, hashes[at]) else {
                self.expect_span(lane, span);
                return None;
            };
            // The known part of a run at once.
            let run = self.forest.run(place.run);
            let most = ((run.len - place.at) as usize).min(hashes.len() - at);
            let known = self.forest.common(run, place.at, &hashes[at..at + most]);
            at += known as usize;
            let next = RunSpan {
                run: place.run,
                start: place.at,
                end: place.at + known,
            };
            before = Some(next.last());
            if !span.as_mut().is_some_and(|span| span.extend(next)) {
                self.expect_span(lane, span.replace(next));
            }
        }
        self.expect_span(lane, span);
        before
    }

    /// Adds blocks to a lane together: alone each would change the coverage of its run.
    fn expect_span(&mut self, lane: LaneId, span: Option<RunSpan>) {
        if let Some(RunSpan { run, start, end }) = span {
            self.cover(lane, run, start, end);
        }
    }

    /// Returns the lane for a prompt of so many blocks: the one in which its prediction began, or else that of the
    /// current generation. The generations age at most once for a prompt, when its prediction begins.
    fn expecting_lane(&mut self, sent: &Sent, block_size: u32, blocks: u64, begun: Option<LaneId>) -> LaneId {
        if let Some(known) = self.expected.get(&sent.worker).copied() {
            let kept = begun.filter(|begun| known.lanes().any(|lane| lane == *begun));
            if known.block_size != block_size {
                self.forget_expected(sent.worker);
            } else if begun.is_none() && self.is_full(known.current, sent.capacity, blocks) {
                self.age_expected(sent.worker);
            } else if let Some(lane) = kept.or(known.current) {
                return lane;
            }
        }
        let lane = self.new_lane();
        self.lanes[lane.0 as usize].is_expected = true;
        let expected = self.expected.entry(sent.worker).or_insert(WorkerPredictions {
            block_size,
            current: None,
            previous: None,
        });
        expected.current = Some(lane);
        self.refresh_row(sent.worker);
        lane
    }

    /// Returns `true` if a generation has half of the capacity, or no room for so many blocks more.
    fn is_full(&self, lane: Option<LaneId>, capacity: u64, blocks: u64) -> bool {
        let held = lane.map_or(0, |lane| self.lanes[lane.0 as usize].held);
        held > 0 && (held >= capacity.div_ceil(2) || held + blocks > capacity)
    }

    /// Drops predictions that no request has renewed for one age.
    pub(crate) fn age_expected(&mut self, worker: WorkerId) {
        let Some(expected) = self.expected.get_mut(&worker) else {
            return;
        };
        let dropped = expected.previous.take();
        expected.previous = expected.current.take();
        if expected.previous.is_none() {
            self.expected.remove(&worker);
        }
        if let Some(lane) = dropped {
            self.drop_lane(lane);
        }
        self.refresh_row(worker);
    }

    /// Drops all predictions of a worker.
    pub(crate) fn forget_expected(&mut self, worker: WorkerId) {
        if let Some(expected) = self.expected.remove(&worker) {
            expected.lanes().for_each(|lane| self.drop_lane(lane));
            self.refresh_row(worker);
        }
    }
}

#[cfg(test)]
mod tests;
