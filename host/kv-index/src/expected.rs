//! Blocks that are expected at a worker because a request was just sent there, before its engine says so; and, for workers whose
//! engine never says anything, all that is known of them.
//!
//! What is expected is kept as two generations. A request's blocks go into the current one; ageing drops the previous one
//! whole and makes the current one previous. So a block is expected for one to two ages after the last request for it, and
//! at most `capacity` blocks are: beyond half of it the generations age early. Events settle it: what the engine stores is held
//! by a lane of its own, what it removes or clears is expected no longer, and what was expected in vain goes with its
//! generation.

use routing::WorkerId;

use crate::core::Core;
use crate::lanes::LaneId;
use crate::prompt::Prompt;

/// What is expected of one worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) block_size: u32,
    pub(crate) current: Option<LaneId>,
    pub(crate) previous: Option<LaneId>,
}

/// A request that was sent to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Where to.
    pub worker: WorkerId,
    /// Tokens a block of that worker's cache, where the index does not know it from events; 0: nothing is expected then.
    pub block_size: u32,
    /// Most blocks to expect there at a time.
    pub capacity: u64,
}

impl Expected {
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        self.current.into_iter().chain(self.previous)
    }
}

impl Core {
    /// Tokens a block at a worker, as far as events or expectations told.
    pub(crate) fn block_size(&self, worker: WorkerId) -> Option<u32> {
        Some(self.rows.get(worker).block_size).filter(|&size| size > 0)
    }

    /// Expects the blocks `from..to` of a prompt at a worker; answers where the next ones start, none at the end.
    pub(crate) fn expect(
        &mut self,
        sent: &Sent,
        prompt: &mut Prompt<'_>,
        from: usize,
        to: usize,
    ) -> Option<usize> {
        let told = self
            .caches
            .ranks(sent.worker)
            .find(|(_, cache)| !cache.lanes.is_empty());
        let block_size = told.map_or(sent.block_size, |(_, cache)| cache.base);
        let to = to.min(prompt.blocks(block_size));
        if block_size == 0 || from >= to {
            return None;
        }
        let lane = self.expecting_lane(sent, block_size);
        let hashes = prompt.hashes(block_size, to);
        let mut parent = None;
        let mut at = 0;
        while at < to {
            let Ok(place) = self.find_or_add(parent, hashes[at]) else {
                return None;
            };
            // The known part of a run at once: the walk from the start costs little on every call.
            let run = self.forest.run(place.run);
            let most = ((run.len - place.at) as usize).min(to - at) as u32;
            let known = self.forest.common(run, place.at, &hashes[at..at + most as usize]);
            self.cover(lane, place.run, place.at, place.at + known);
            at += known as usize;
            parent = Some(crate::forest::Place {
                run: place.run,
                at: place.at + known - 1,
            });
        }
        self.tend(2);
        Some(to).filter(|&to| to < prompt.blocks(block_size))
    }

    /// The lane that requests' blocks go to now.
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
        let expected = self.expected.entry(sent.worker).or_insert(Expected {
            block_size,
            current: None,
            previous: None,
        });
        expected.current = Some(lane);
        self.refresh_row(sent.worker);
        lane
    }

    /// Drops what was expected of a worker an age ago and not since.
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

    /// Expects nothing of a worker any more.
    pub(crate) fn forget_expected(&mut self, worker: WorkerId) {
        if let Some(expected) = self.expected.remove(&worker) {
            expected.lanes().for_each(|lane| self.drop_lane(lane));
            self.refresh_row(worker);
        }
    }
}
