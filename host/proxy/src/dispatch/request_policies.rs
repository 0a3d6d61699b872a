//! Policies of one request. A request that waits while its route changes is decided by the route's present policies, so
//! that a rollback frees the requests that the rolled-back version holds.

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

    /// Leaves the decisions to the policies of the route in the active snapshot. The request keeps its canary by name.
    /// Where that is gone, the control decides.
    pub(crate) fn follow(&self) {
        let now = self.now();
        let next = now.route.current.get();
        if let Some(next) = next.filter(|next| !Arc::ptr_eq(&now.route, next)) {
            let arm = next.arm_after(&now.route, now.arm);
            // Only the request's own placement moves it, one step after the other.
            let _ = now.later.set(Box::new(Self::new(next, arm)));
        }
    }

    fn now(&self) -> &Self {
        let mut now = self;
        while let Some(later) = now.later.get() {
            now = later;
        }
        now
    }
}
