//! Change of a route by the whole fleet: every router stages it, then one revision switches all of them.

use std::time::{Duration, Instant};

use admin_pages::control::{RefusedRouteChange, RouteAnswer};
use agreement::{AgreedKey, AgreedKind, SubjectState};
use replica_plane::{AgreedHandle, AgreedView};
use runtime_overrides::{Overlays, RouteChange, RouteOverrides};
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
    is_switching: bool,
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
        let stored = view.stored(&staging.key);
        let stored = stored.filter(|known| known.entry.value == json!(staging.decision));
        let Some(stored) = stored else {
            let first = "another router decided on this route first";
            return Some(Err(RefusedRouteChange::Fleet(first.to_owned())));
        };
        let revision = stored.revision;
        Some(self.advance(staging, &view, revision))
    }

    /// Moves a staged change on, whose decision the store has.
    fn advance(&mut self, mut staging: RouteStaging, view: &AgreedView, revision: u64) -> Answer {
        let route = staging.decision.route;
        if staging.is_switching {
            // The look before applied the switch.
            return Ok(Some(self.route_changed(&staging.change, route)));
        }
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
                staging.is_switching = true;
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
        };
        if let Some(agreed) = &mut self.agreed {
            agreed.handle.propose(key.clone(), json!(decision), objects);
            agreed.staging = Some(RouteStaging {
                change: change.clone(),
                key,
                before,
                decision,
                since: Instant::now(),
                is_switching: false,
            });
        }
        Ok(true)
    }

    /// Proposes the policies of a route that this router changed alone.
    pub(in crate::reload) fn propose_route(&self, route: usize) {
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
            };
            agreed.handle.propose(key, json!(decision), objects);
        }
    }
}
