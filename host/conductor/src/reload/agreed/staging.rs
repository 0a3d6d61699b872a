//! Change of a route by the whole fleet: every router stages it, then one revision switches all of them.

use std::time::{Duration, Instant};

use admin_pages::control::{RefusedRouteChange, RouteAnswer};
use agreement::{AgreedKey, AgreedKind, SubjectState};
use replica_plane::{AgreedHandle, AgreedView, ViewEntry};
use runtime_overrides::{Overlays, RouteChange, RouteChangeError, RouteOverrides};
use serde_json::json;

use super::AgreedFollower;
use super::route_decision::{RouteDecision, RouteVersion};
use crate::reload::Reloader;

/// Time in which the store must have a decision, and every router must have staged a change.
const DEADLINE: Duration = Duration::from_secs(60);

/// Change that the fleet stages.
pub(super) struct RouteStaging {
    change: RouteChange,
    key: AgreedKey,
    before: RouteVersion,
    decision: RouteDecision,
    since: Instant,
}

/// Progress of a change over the routers.
enum StagingProgress {
    Waiting,
    Ready,
    Refused(String),
}

type Answer = Result<Option<RouteAnswer>, RefusedRouteChange>;

impl RouteStaging {
    /// Proposes the policies from before the change, in place of its last proposal.
    fn give_up(mut self, handle: &AgreedHandle) {
        self.decision.staged = None;
        self.decision.change = None;
        self.decision.active = self.before;
        handle.propose(self.key, json!(self.decision), None);
    }
}

impl AgreedFollower {
    /// Lets the change that is being staged be older than it is.
    #[cfg(test)]
    pub(in crate::reload) fn age_staging(&mut self, age: Duration) {
        if let Some(staging) = &mut self.staging {
            staging.since = Instant::now().checked_sub(age).unwrap_or(staging.since);
        }
    }

    /// Returns whether the store has this decision of another router, and this router does not have its outcome yet.
    fn is_under_way(&self, key: &AgreedKey, decision: &RouteDecision) -> bool {
        let view = self.handle.view();
        let Some(stored) = view.stored(key).filter(|_| !self.handle.is_proposed(key)) else {
            return false;
        };
        let known = RouteDecision::of(stored).filter(|known| known.outcome() == decision.outcome());
        known.is_some_and(|known| known.staged.is_some() || !self.handle.has_applied(key, stored.revision))
    }

    /// Returns the progress of the routers that must stage a change, at this revision.
    fn progress(&self, view: &AgreedView, key: &AgreedKey, revision: u64) -> StagingProgress {
        let others = self.live_routers();
        let own = self.handle.states();
        let own = (
            self.handle.router().to_owned(),
            self.handle.router().to_owned(),
            Some(&own),
        );
        let live = others.iter().map(|other| {
            let name = other.name.clone().unwrap_or_else(|| other.router.clone());
            (other.router.clone(), name, view.states.get(&other.router))
        });
        let mut missing = Vec::new();
        for (_, name, states) in live.chain([own]) {
            let state = states.and_then(|states| states.get(key));
            match state.filter(|(of_revision, _)| *of_revision == revision) {
                Some((_, SubjectState::Staged | SubjectState::Applied)) => {}
                Some((_, state)) if state.reason().is_some() => {
                    let why = state.reason().unwrap_or_default();
                    return StagingProgress::Refused(format!("router `{name}` cannot stage it: {why}"));
                }
                _ => missing.push(name),
            }
        }
        if missing.is_empty() {
            StagingProgress::Ready
        } else if self
            .staging
            .as_ref()
            .is_some_and(|staging| staging.since.elapsed() > DEADLINE)
        {
            StagingProgress::Refused(format!("not staged in {DEADLINE:?} by {}", missing.join(", ")))
        } else {
            StagingProgress::Waiting
        }
    }
}

impl Reloader {
    /// Moves a change that the fleet stages on. `None` if none is under way.
    pub(in crate::reload) fn change_in_progress(&mut self, change: &RouteChange) -> Option<Answer> {
        let agreed = self.agreed.as_mut()?;
        let staging = agreed.staging.take()?;
        if staging.change != *change {
            let is_over = staging.since.elapsed() > 2 * DEADLINE;
            agreed.staging = (!is_over).then_some(staging);
            let busy = "another change of a route is being staged: try again";
            return Some(Err(RefusedRouteChange::Fleet(busy.to_owned())));
        }
        // Before the view: it has the entry of a proposal that was accepted.
        let is_proposed = agreed.handle.is_proposed(&staging.key);
        let view = agreed.handle.view();
        if !view.is_synced && staging.decision.staged.is_none() {
            let lost = "the store of the fleet's decisions is away, and may have the change";
            return Some(Err(RefusedRouteChange::Alone(lost.to_owned())));
        }
        if !view.is_synced {
            let away = "the store of the fleet's decisions is away; try again, and this router changes alone";
            return Some(Err(RefusedRouteChange::Fleet(away.to_owned())));
        }
        if is_proposed {
            if staging.since.elapsed() <= DEADLINE {
                agreed.staging = Some(staging);
                return Some(Ok(None));
            }
            let why = view.refusal(&staging.key).unwrap_or("the store does not answer");
            let why = format!("the store of the fleet's decisions did not take it in {DEADLINE:?}: {why}");
            staging.give_up(&agreed.handle);
            return Some(Err(RefusedRouteChange::Fleet(why)));
        }
        if !view.has_room(&staging.key) {
            let full = "the store of the fleet's decisions has as many as it keeps";
            return Some(Err(RefusedRouteChange::Fleet(full.to_owned())));
        }
        let Some(stored) = view.stored(&staging.key) else {
            let removed = "the store of the fleet's decisions lost it";
            return Some(Err(RefusedRouteChange::Fleet(removed.to_owned())));
        };
        Some(self.follow_stored(staging, &view, stored))
    }

    /// Moves a change on by the entry that the store has: the own decision, or the same one of another router.
    fn follow_stored(&mut self, mut staging: RouteStaging, view: &AgreedView, stored: &ViewEntry) -> Answer {
        let same =
            RouteDecision::of(stored).filter(|decision| decision.outcome() == staging.decision.outcome());
        let Some(decision) = same else {
            return Err(self.overtaken(&staging, stored));
        };
        let has_switched = decision.staged.is_none();
        if !has_switched {
            staging.before = decision.active.clone();
        }
        // The route's number is that of the own file.
        let route = staging.decision.route;
        staging.decision = RouteDecision { route, ..decision };
        match has_switched {
            true => self.switched(staging, stored.revision),
            false => self.advance(staging, view, stored.revision),
        }
    }

    /// Returns the refusal of a change in whose place another decision was accepted.
    fn overtaken(&self, staging: &RouteStaging, stored: &ViewEntry) -> RefusedRouteChange {
        let others = self.agreed.as_ref().map(AgreedFollower::live_routers);
        let other = others
            .iter()
            .flatten()
            .find(|other| other.router == stored.entry.by);
        let name = other.and_then(|other| other.name.as_deref());
        let by = name.unwrap_or(&stored.entry.by).to_owned();
        match RouteDecision::of(stored).is_some_and(|decision| *decision.outcome() == staging.before) {
            true => RefusedRouteChange::Fleet(format!("router `{by}` decided that the route stays as it is")),
            false => RefusedRouteChange::Overtaken(by),
        }
    }

    /// Answers a change that the fleet has switched to, once this router has.
    fn switched(&mut self, staging: RouteStaging, revision: u64) -> Answer {
        let Some(agreed) = self.agreed.as_mut() else {
            return Ok(None);
        };
        let states = agreed.handle.states();
        let state = states.get(&staging.key).filter(|(known, _)| *known == revision);
        match state {
            Some((_, SubjectState::Applied)) => {
                Ok(Some(self.route_changed(&staging.change, staging.decision.route)))
            }
            Some((_, state)) if state.reason().is_some() => {
                let why = state.reason().unwrap_or_default();
                let why = format!("the others did, and this router cannot: {why}");
                Err(RefusedRouteChange::Alone(why))
            }
            _ if staging.since.elapsed() > DEADLINE => {
                let why = format!("the others did, and this router is not ready after {DEADLINE:?}");
                Err(RefusedRouteChange::Alone(why))
            }
            _ => {
                agreed.staging = Some(staging);
                Ok(None)
            }
        }
    }

    /// Moves a change on that is staged, by the decision that the store has.
    fn advance(&mut self, mut staging: RouteStaging, view: &AgreedView, revision: u64) -> Answer {
        let Some(agreed) = self.agreed.as_mut() else {
            return Ok(None);
        };
        agreed.staging = Some(staging);
        let Some(kept) = &agreed.staging else {
            return Ok(None);
        };
        let progress = agreed.progress(view, &kept.key, revision);
        let Some(taken) = agreed.staging.take() else {
            return Ok(None);
        };
        staging = taken;
        match progress {
            StagingProgress::Waiting => {
                agreed.staging = Some(staging);
                Ok(None)
            }
            StagingProgress::Ready => {
                if let Some(staged) = staging.decision.staged.take() {
                    staging.decision.active = staged;
                }
                let value = json!(staging.decision);
                agreed.handle.propose(staging.key.clone(), value, None);
                staging.since = Instant::now();
                agreed.staging = Some(staging);
                Ok(None)
            }
            StagingProgress::Refused(why) => {
                staging.give_up(&agreed.handle);
                Err(RefusedRouteChange::Fleet(why))
            }
        }
    }

    /// Returns the fleet's decision on a route that this router follows, unless another one is under way.
    fn followed_decision(&self, route: usize) -> Option<RouteDecision> {
        let handle = &self.agreed.as_ref().filter(|agreed| agreed.is_synced())?.handle;
        let fingerprint = RouteOverrides::fingerprint(self.active_file(), route)?;
        let key = AgreedKey::of(AgreedKind::Route, &fingerprint);
        // Before the view: it has the entry of a proposal that was accepted.
        let is_proposed = handle.is_proposed(&key);
        let view = handle.view();
        let known = view.stored(&key).filter(|_| !is_proposed)?;
        let is_followed = |decision: &RouteDecision| {
            decision.staged.is_none()
                && decision.fingerprint == fingerprint
                && handle.has_applied(&key, known.revision)
        };
        RouteDecision::of(known).filter(is_followed)
    }

    /// Returns whether the fleet has decided on the route's policies of these overlays, and this router follows that: the
    /// change was made already, by this or another router.
    pub(in crate::reload) fn fleet_has(&self, overlays: &Overlays, route: usize) -> bool {
        let Some(decision) = self.followed_decision(route) else {
            return false;
        };
        let has = |overlays: &Overlays| {
            let version = self.route_version(overlays, &decision.fingerprint);
            version.is_ok_and(|(version, _)| version == decision.active)
        };
        has(overlays) && has(&self.active.overlays)
    }

    /// Begins to stage a change by the whole fleet. Returns false if this router decides alone.
    pub(in crate::reload) fn stage_route(
        &mut self,
        change: &RouteChange,
        overlays: &Overlays,
        route: usize,
    ) -> Result<bool, RefusedRouteChange> {
        if !self.agreed.as_ref().is_some_and(AgreedFollower::is_synced) {
            return Ok(false);
        }
        let Some(fingerprint) = RouteOverrides::fingerprint(self.active_file(), route) else {
            return Ok(false);
        };
        let refuse = RefusedRouteChange::Unavailable;
        let (staged, mut objects) = self.route_version(overlays, &fingerprint).map_err(refuse)?;
        let before = self.route_version(&self.active.overlays, &fingerprint);
        let (before, objects_before) = before.map_err(refuse)?;
        // The store lacks those of an override that is older than the fleet.
        objects.extend(objects_before);
        let key = AgreedKey::of(AgreedKind::Route, &fingerprint);
        let decision = RouteDecision {
            fingerprint,
            route,
            active: before.clone(),
            staged: Some(staged),
            change: Some(RouteDecision::text_of(change)),
        };
        if let Some(agreed) = &mut self.agreed {
            if !agreed.is_under_way(&key, &decision) {
                agreed.handle.propose(key.clone(), json!(decision), objects);
            }
            agreed.staging = Some(RouteStaging {
                change: change.clone(),
                key,
                before,
                decision,
                since: Instant::now(),
            });
        }
        Ok(true)
    }

    /// Returns the answer to a change that is refused because another router made it: operators send a change to all
    /// routers of a fleet.
    pub(in crate::reload) fn made_by_fleet(
        &self,
        change: &RouteChange,
        refused: &RouteChangeError,
    ) -> Option<RouteAnswer> {
        use RouteChangeError::{Decides, NotTried, NothingToRetract};
        if !matches!(refused, NotTried(_) | Decides { .. } | NothingToRetract(_)) {
            return None;
        }
        let text = RouteDecision::text_of(change);
        let is_made = |route: &usize| {
            let decision = self.followed_decision(*route);
            decision.is_some_and(|made| made.change.as_ref() == Some(&text))
        };
        let mut routes = 1..=self.active_file().routes.len();
        let is_chosen = |route: &usize| change.route.is_none_or(|chosen| chosen == *route);
        let route = routes.find(|route| is_chosen(route) && is_made(route))?;
        Some(self.route_answer(change, route))
    }

    /// Proposes the policies of a route that this router changed alone.
    pub(in crate::reload) fn propose_route(&self, change: &RouteChange, route: usize) {
        let Some(agreed) = &self.agreed else {
            return;
        };
        let Some(fingerprint) = RouteOverrides::fingerprint(self.active_file(), route) else {
            return;
        };
        if let Ok((active, objects)) = self.route_version(&self.active.overlays, &fingerprint) {
            let key = AgreedKey::of(AgreedKind::Route, &fingerprint);
            let decision = RouteDecision {
                fingerprint,
                route,
                active,
                staged: None,
                change: Some(RouteDecision::text_of(change)),
            };
            agreed.handle.propose(key, json!(decision), objects);
        }
    }
}
