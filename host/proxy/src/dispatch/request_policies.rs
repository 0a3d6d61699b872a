//! Policies of one request. A request that waits while its route changes is decided by the route's present policies, so
//! that a rollback frees the requests that the rolled-back version holds. The stop of a canary does the same.

use std::sync::{Arc, OnceLock};

use routing::Phase;

use crate::dispatch::route_policies::{DecidingPolicy, RoutePolicies};

/// Policies of a route, and the arm of the request.
#[derive(Debug)]
pub(crate) struct RequestPolicies {
    route: Arc<RoutePolicies>,
    /// Index of the arm that decides.
    arm: usize,
    /// Policies of a later snapshot that decide now. The earlier ones stay, because they may still be borrowed.
    later: OnceLock<Box<Self>>,
}

impl RequestPolicies {
    pub(crate) fn new(route: Arc<RoutePolicies>, arm: usize) -> Self {
        Self {
            route,
            arm,
            later: OnceLock::new(),
        }
    }

    /// Returns the policies of the route when it took the request. Its objectives, its shadows and its experiment are
    /// those of the request to the end.
    pub(crate) fn at_arrival(&self) -> &RoutePolicies {
        &self.route
    }

    /// Returns the policy that places that part of the request.
    pub(crate) fn deciding(&self, phase: Phase) -> &DecidingPolicy {
        let now = self.now();
        now.route.policy(phase, now.arm)
    }

    /// Returns `true` if each phase has a policy of its own.
    pub(crate) fn is_by_phase(&self) -> bool {
        self.now().route.is_by_phase()
    }

    /// Returns the arm that decides. `None` where the route has one arm only.
    pub(crate) fn arm(&self) -> Option<usize> {
        let now = self.now();
        now.route.trial().map(|_| now.arm)
    }

    /// Leaves the decisions to the policies of the route in the active snapshot. The request keeps its canary by name.
    /// Where that is gone or stopped, the control decides. Returns `true` if another policy may decide now.
    pub(crate) fn follow(&self) -> bool {
        let now = self.now();
        let next = now.route.current.get().unwrap_or_else(|| Arc::clone(&now.route));
        let arm = next.arm_after(&now.route, now.arm);
        let has_moved = arm != now.arm || !Arc::ptr_eq(&now.route, &next);
        if has_moved {
            // Only the request's own placement moves it, one step after the other.
            let _ = now.later.set(Box::new(Self::new(next, arm)));
        }
        has_moved
    }

    fn now(&self) -> &Self {
        let mut now = self;
        while let Some(later) = now.later.get() {
            now = later;
        }
        now
    }
}
