//! Pool of one request. A request that waits while its pool changes moves to the pool's present workers, unless its
//! state names members of the earlier pool, the two pools split requests differently, or only the later one isolates
//! prefixes.

use std::sync::{Arc, OnceLock};

use crate::dispatch::pool_state::PoolState;
use crate::fleet::catalog::{self, RequestModel};

/// A pool, and its members that serve the request's model.
#[derive(Debug)]
pub(crate) struct RequestPool {
    state: Arc<PoolState>,
    served: RequestModel,
    /// Pool of a later snapshot that the request moved to. The earlier one stays, because it may still be borrowed.
    later: OnceLock<Box<Self>>,
}

impl RequestPool {
    pub(crate) fn new(state: Arc<PoolState>, served: RequestModel) -> Self {
        Self {
            state,
            served,
            later: OnceLock::new(),
        }
    }

    /// Returns the pool that the request moved to last, or this one.
    pub(crate) fn now(&self) -> &Self {
        let mut now = self;
        while let Some(later) = now.later.get() {
            now = later;
        }
        now
    }

    pub(crate) fn state(&self) -> &Arc<PoolState> {
        &self.state
    }

    pub(crate) fn served(&self) -> &RequestModel {
        &self.served
    }

    /// Moves the request to the pool's state in the active snapshot. Returns `true` if that is another one.
    pub(crate) async fn follow(&self, model: &str) -> bool {
        let now = self.now();
        let Some(next) = now.successor() else {
            return false;
        };
        let served = RequestModel::new(catalog::look_up(&next.workers, model).await);
        // Only the request's own placement moves it, one step after the other.
        let _ = now.later.set(Box::new(Self::new(next, served)));
        true
    }

    /// Returns the pool's state in the active snapshot, if it is another one that can take the request over. The
    /// request was prepared for the pool's way to split requests, so that must be the same. A request without its
    /// tenant's salt must not share the prefixes of a pool that isolates them.
    fn successor(&self) -> Option<Arc<PoolState>> {
        let (before, next) = (&self.state, self.state.current.get()?);
        let split = |state: &PoolState| state.pd.as_ref().map(|pd| (pd.spec.dialect, pd.spec.alone));
        let is_isolated = before.bodies.isolate_prefixes || !next.bodies.isolate_prefixes;
        let can_take_over = is_isolated && split(before) == split(&next);
        (!Arc::ptr_eq(before, &next) && can_take_over).then_some(next)
    }
}
