//! Once a request is sent, its worker is expected to hold its prompt: before the engine's events say so, for as long as
//! the pool says, and where an engine publishes no events, in their place.

use std::time::Duration;

use kv_index::Sent;
use routing::WorkerId;

use crate::fleet::feeds::LiveFeeds;
use crate::proxy::Proxy;
use crate::request::context::RequestContext;

/// Most blocks expected at a worker whose events will tell soon: those of some hundred long prompts.
const SOON_TOLD: u64 = 262_144;

/// What a pool expects of its workers' caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expectation {
    /// How long a worker with live events is expected to hold what it was just sent; zero for not at all.
    pub until_told: Duration,
    /// The same for workers without; none: nothing is known of those.
    pub assumed: Option<AssumedCache>,
}

/// A cache that publishes nothing, as the operator describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssumedCache {
    /// Tokens it holds.
    pub tokens: u64,
    /// Tokens a block, above 0: matches are counted in these.
    pub block_size: u32,
    /// How long it holds what nobody asks for again.
    pub lifetime: Duration,
}

impl Expectation {
    /// How long blocks are expected at a worker; zero for not at all.
    fn lifetime(&self, is_live: bool) -> Duration {
        match self.assumed {
            Some(assumed) if !is_live => assumed.lifetime,
            _ => self.until_told,
        }
    }

    /// What to tell the index of a request that goes to a worker.
    fn sent(&self, worker: WorkerId, is_live: bool) -> Option<Sent> {
        let (block_size, capacity) = match self.assumed {
            Some(assumed) if !is_live => (
                assumed.block_size,
                assumed.tokens / u64::from(assumed.block_size.max(1)),
            ),
            // The index knows the block size from events; without any it has nothing to compare with either.
            _ if is_live && !self.until_told.is_zero() => (0, SOON_TOLD),
            _ => return None,
        };
        Some(Sent {
            worker,
            block_size,
            capacity,
        })
    }
}

/// Expects the request's prompt at the worker it goes to.
pub(crate) fn expect(proxy: &Proxy, request: &RequestContext, worker: WorkerId) {
    let Some(prompt) = &request.prompt else { return };
    let is_live = proxy.live.is_live(worker);
    if let Some(sent) = request.pool().expectation.sent(worker, is_live) {
        proxy.index.expect(&sent, &mut prompt.lock());
    }
}

impl Proxy {
    /// How long blocks are expected at each worker of the fleet: for the index to forget them by.
    #[must_use]
    pub fn expectations(&self) -> Vec<(WorkerId, Duration)> {
        let snapshot = self.snapshots.load();
        let of_pool = |live: &LiveFeeds, pool: &crate::request::snapshot::PoolState| {
            let lifetime = |worker| (worker, pool.expectation.lifetime(live.is_live(worker)));
            let members = pool
                .workers
                .members
                .iter()
                .map(|member| lifetime(member.worker.id()));
            members.collect::<Vec<_>>()
        };
        let pools = snapshot.pools.iter();
        pools.flat_map(|pool| of_pool(&self.live, pool)).collect()
    }
}
