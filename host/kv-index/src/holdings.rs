//! Holdings of a worker: its blocks by tier.

use routing::{Tier, WorkerId};

use crate::core::IndexCore;

/// Blocks of all ranks of a worker, counted per group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerHoldings {
    /// Blocks in the accelerator's memory.
    pub device: u64,
    /// Blocks in host memory.
    pub host: u64,
    /// Blocks on the worker's disk.
    pub disk: u64,
    /// Blocks in storage that several workers share, as its own events report them.
    pub shared: u64,
    /// Blocks that are predicted because a request was just sent there.
    pub expected: u64,
}

impl IndexCore {
    pub(crate) fn holdings(&self, worker: WorkerId) -> WorkerHoldings {
        let mut held = WorkerHoldings::default();
        for lane in self.caches.ranks(worker).flat_map(|(_, cache)| &cache.lanes) {
            let tier = match lane.tier {
                Tier::Device => &mut held.device,
                Tier::Host => &mut held.host,
                Tier::Disk => &mut held.disk,
                Tier::Shared => &mut held.shared,
            };
            *tier += self.lanes[lane.id.0 as usize].held;
        }
        let expected = self.expected.get(&worker);
        let lanes = expected.into_iter().flat_map(|expected| expected.lanes());
        held.expected = lanes.map(|lane| self.lanes[lane.0 as usize].held).sum();
        held
    }
}
