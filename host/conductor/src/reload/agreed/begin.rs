//! Beginning of a change of a route: whether the fleet stages it, or this router makes it for itself.

use std::sync::Arc;
use std::time::Instant;

use admin_pages::control::RefusedRouteChange;
use agreement::{AgreedKey, AgreedKind, RouterStates};
use replica_plane::{AgreedView, RouterRow};
use runtime_overrides::{Overlays, RouteChange, RouteOverrides};
use serde_json::json;

use super::AgreedFollower;
use super::route_decision::{RouteDecision, RouteVersion};
use super::routes::ComponentObjects;
use super::staged_change::{DEADLINE, RouteStaging};
use super::standing::RouteStanding;
use crate::reload::Reloader;

/// Way of a change of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reload) enum ChangeWay {
    /// The fleet stages it, once this router follows the present decision.
    Fleet,
    /// This router makes it, and proposes it.
    Alone,
    /// This router makes it for itself: it does not follow the fleet's decision, which stays.
    Apart,
}

/// Look at the fleet's decision on a route.
struct RouteLook {
    fingerprint: String,
    key: AgreedKey,
    view: Arc<AgreedView>,
    /// Set while the store has not accepted the latest own proposal, nor refused it.
    is_proposed: bool,
    /// The own proposal, else the decision of the store.
    decided: Option<RouteDecision>,
}

impl RouteLook {
    fn revision(&self) -> u64 {
        self.view.revision(&self.key)
    }

    /// Returns the decision, if the fleet has decided on the route.
    fn binding(&self) -> Option<&RouteDecision> {
        self.decided.as_ref().filter(|decided| !decided.is_undecided)
    }
}

impl AgreedFollower {
    /// Looks at the decision on the route of this fingerprint.
    fn look_at_route(&mut self, fingerprint: String) -> RouteLook {
        let key = AgreedKey::of(AgreedKind::Route, &fingerprint);
        // Before the view: it has the entry of a proposal that was accepted.
        let is_proposed = self.handle.is_proposed(&key);
        let view = self.handle.view();
        self.note_seen(&key, view.revision(&key));
        RouteLook {
            decided: view.followed_one(&key).and_then(RouteDecision::of),
            fingerprint,
            key,
            view,
            is_proposed,
        }
    }

    /// Returns the standing of this router with these policies towards the decision.
    fn standing(&self, look: &RouteLook, own: &RouteVersion) -> RouteStanding {
        let Some(decided) = look.binding() else {
            return RouteStanding::Follows;
        };
        let revision = look.revision();
        let of_revision = |states: &RouterStates| {
            let known = states.get(&look.key).filter(|(known, _)| *known == revision);
            known.map(|(_, state)| state.clone())
        };
        let cannot = |other: &RouterRow| {
            let state = look.view.states.get(&other.router).and_then(of_revision);
            state.is_some_and(|state| state.reason().is_some())
        };
        // A silent router may follow the decision. One that was not heard yet may, too.
        let others = self.known_routers();
        let none_follows = match others.is_empty() {
            true => self.is_alone(),
            false => others.iter().all(cannot),
        };
        // Without the store, the states of the others are old.
        let is_abandoned = look.view.is_synced && none_follows;
        let state = of_revision(&self.handle.states());
        RouteStanding::of(decided, own, state.as_ref(), is_abandoned)
    }

    /// Returns whether the store has this decision of another router, and this router does not have its outcome yet.
    fn is_under_way(&self, look: &RouteLook, decision: &RouteDecision) -> bool {
        let Some(stored) = look.view.stored(&look.key) else {
            return false;
        };
        let known = RouteDecision::of(&stored.entry).filter(|known| known.outcome() == decision.outcome());
        known.is_some_and(|known| {
            known.staged.is_some() || !self.handle.has_applied(&look.key, stored.revision)
        })
    }

    /// Returns whether a change may begin over the decision, or later.
    fn may_begin(&self, look: &RouteLook, own: &RouteVersion) -> Result<bool, RefusedRouteChange> {
        if look.is_proposed && !look.view.is_proposed(&look.key) {
            // The view has the own proposal soon.
            return Ok(false);
        }
        if let Some(by) = self.stages_now(look) {
            let busy = format!("router `{by}` stages another change of the route: try again");
            return Err(RefusedRouteChange::Fleet(busy));
        }
        let why = match self.standing(look, own) {
            RouteStanding::Follows => return Ok(true),
            RouteStanding::Begins if self.is_new(&look.key, look.revision()) => return Ok(false),
            RouteStanding::Begins => {
                format!(
                    "this router does not follow the fleet's present decision on the route after {DEADLINE:?}"
                )
            }
            RouteStanding::Apart(why) => format!(
                "this router does not follow the fleet's present decision on the route ({why}); change it at another \
                 router"
            ),
        };
        Err(RefusedRouteChange::Fleet(why))
    }

    /// Returns the name of another router that is staging a change of the route.
    fn stages_now(&self, look: &RouteLook) -> Option<String> {
        let stored = look.view.stored(&look.key)?;
        RouteDecision::of(&stored.entry)?.staged?;
        let others = self.live_routers();
        let by = others
            .into_iter()
            .find(|other| other.router == stored.entry.by && self.is_new(&look.key, stored.revision))?;
        Some(by.name.unwrap_or(by.router))
    }

    /// Returns whether this router saw a revision of a route's decision for less than the time of a step.
    fn is_new(&self, key: &AgreedKey, revision: u64) -> bool {
        let seen = self.seen.get(key).filter(|(seen, _)| *seen == revision);
        seen.is_none_or(|(_, since)| since.elapsed() <= DEADLINE)
    }

    /// Stages a change with this decision, proposed by this router unless another one did, or leaves it for later.
    fn stage(
        &mut self,
        look: RouteLook,
        own: &RouteVersion,
        change: &RouteChange,
        decision: RouteDecision,
        objects: ComponentObjects,
    ) -> Result<(), RefusedRouteChange> {
        let over = look.view.judged(&look.key);
        if look.is_proposed || !self.is_under_way(&look, &decision) {
            if !self.may_begin(&look, own)? {
                return Ok(());
            }
            self.handle
                .propose_over(look.key.clone(), json!(decision), over.clone(), objects);
        }
        self.staging = Some(RouteStaging {
            change: change.clone(),
            key: look.key,
            before: decision.active.clone(),
            was_undecided: decision.is_undecided,
            decision,
            since: Instant::now(),
            over,
            given_up: None,
        });
        Ok(())
    }
}

impl Reloader {
    /// Begins to stage a change by the whole fleet, once this router follows its present decision. Returns the way of
    /// the change.
    pub(in crate::reload) fn stage_route(
        &mut self,
        change: &RouteChange,
        overlays: &Overlays,
        route: usize,
    ) -> Result<ChangeWay, RefusedRouteChange> {
        let fingerprint = RouteOverrides::fingerprint(self.active_file(), route);
        let (Some(fingerprint), Some(agreed)) = (fingerprint, &mut self.agreed) else {
            return Ok(ChangeWay::Alone);
        };
        let look = agreed.look_at_route(fingerprint);
        if !look.view.is_synced {
            return Ok(self.way_without_store(&look));
        }
        let (decision, own, objects) = self
            .staged_decision(&look, change, overlays, route)
            .map_err(RefusedRouteChange::Unavailable)?;
        if let Some(agreed) = &mut self.agreed {
            agreed.stage(look, &own, change, decision, objects)?;
        }
        Ok(ChangeWay::Fleet)
    }

    /// Returns the way of a change without the store.
    fn way_without_store(&self, look: &RouteLook) -> ChangeWay {
        let own = self.route_version(&self.active.overlays, &look.fingerprint);
        let known = self.agreed.as_ref().zip(own.ok());
        match known.map(|(agreed, (own, _))| agreed.standing(look, &own)) {
            None | Some(RouteStanding::Follows) => ChangeWay::Alone,
            Some(RouteStanding::Begins | RouteStanding::Apart(_)) => ChangeWay::Apart,
        }
    }

    /// Returns the decision that stages the policies of these overlays, the own policies, and the bytes of both.
    fn staged_decision(
        &self,
        look: &RouteLook,
        change: &RouteChange,
        overlays: &Overlays,
        route: usize,
    ) -> Result<(RouteDecision, RouteVersion, ComponentObjects), String> {
        let (own, own_objects) = self.route_version(&self.active.overlays, &look.fingerprint)?;
        let (staged, mut objects) = self.route_version(overlays, &look.fingerprint)?;
        // Routers of earlier releases follow `active` before the first switch, so the store needs its bytes too.
        objects.extend(own_objects);
        let decided = look.decided.as_ref();
        let decision = RouteDecision {
            fingerprint: look.fingerprint.clone(),
            route,
            // Only the switch replaces the policies of the fleet's decision.
            active: decided.map_or(&own, |decided| &decided.active).clone(),
            staged: Some(staged),
            change: Some(RouteDecision::text_of(change)),
            is_undecided: look.binding().is_none(),
        };
        Ok((decision, own, objects))
    }
}
