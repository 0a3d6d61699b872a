//! Speculative inserts: blocks predicted at a worker because a request was just sent there.
//!
//! For workers without events, predictions are all that the index knows. They are kept in two generations. A request's
//! blocks go into the current one. Ageing drops the previous generation and makes the current one previous. A block is
//! therefore predicted for one to two ages after its last request, and at most `capacity` blocks are. Beyond half of
//! that the generations age early.
//!
//! Events confirm predictions: a stored block is held by its own lane, and a removed or cleared block is no longer
//! predicted. Wrong predictions expire with their generation.

use routing::WorkerId;

use crate::core::IndexCore;
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
    /// Most predicted blocks of the worker.
    pub capacity: u64,
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

    /// Inserts the blocks `from..to` of a prompt at a worker. Returns the start of the next part, or `None` at the
    /// end.
    pub(crate) fn expect(
        &mut self,
        sent: &Sent,
        prompt: &mut Prompt<'_>,
        from: usize,
        to: usize,
    ) -> Option<usize> {
        let known = self
            .caches
            .ranks(sent.worker)
            .find(|(_, cache)| !cache.lanes.is_empty());
        let block_size = known.map_or(sent.block_size, |(_, cache)| cache.base);
        let to = to.min(prompt.blocks(block_size));
        if block_size == 0 || from >= to {
            return None;
        }
        let lane = self.expecting_lane(sent, block_size);
        let hashes = prompt.hashes(block_size, to);
        let mut span: Option<RunSpan> = None;
        let mut at = 0;
        while at < to {
            let Ok(place) = self.find_or_add(span.map(RunSpan::last), hashes[at]) else {
                self.expect_span(lane, span);
                return None;
            };
            // The known part of a run at once: the walk from the start costs little on every call.
            let run = self.forest.run(place.run);
            let most = ((run.len - place.at) as usize).min(to - at) as u32;
            let known = self.forest.common(run, place.at, &hashes[at..at + most as usize]);
            at += known as usize;
            let next = RunSpan {
                run: place.run,
                start: place.at,
                end: place.at + known,
            };
            if !span.as_mut().is_some_and(|span| span.extend(next)) {
                self.expect_span(lane, span.replace(next));
            }
        }
        self.expect_span(lane, span);
        self.gc_step(2);
        Some(to).filter(|&to| to < prompt.blocks(block_size))
    }

    /// Adds blocks to a lane together: alone each would change the coverage of its run.
    fn expect_span(&mut self, lane: LaneId, span: Option<RunSpan>) {
        if let Some(RunSpan { run, start, end }) = span {
            self.cover(lane, run, start, end);
        }
    }

    /// Returns the lane of the current generation.
    fn expecting_lane(&mut self, sent: &Sent, block_size: u32) -> LaneId {
        let known = self.expected.get(&sent.worker).copied();
        if let Some(known) = known {
            let held = |lane: Option<LaneId>| lane.map_or(0, |lane| self.lanes[lane.0 as usize].held);
            if known.block_size != block_size {
                self.forget_expected(sent.worker);
            } else if held(known.current) >= sent.capacity.div_ceil(2).max(1) {
                self.age_expected(sent.worker);
            } else if let Some(lane) = known.current {
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
