//! Change of a route that the whole fleet stages: every router holds it ready, then one revision switches all of them.

use std::time::Instant;

use admin_pages::control::{RefusedRouteChange, RouteAnswer};
use agreement::{AgreedKey, AgreedKind, Judged, SubjectState};
use replica_plane::AgreedView;
use runtime_overrides::{Overlays, RouteChange, RouteChangeError, RouteOverrides};
use serde_json::json;

use super::AgreedFollower;
use super::route_decision::RouteDecision;
use super::staged_change::{DEADLINE, FoundEntry, RouteStaging, StagingLook, StagingProgress, StagingStep};
use crate::reload::Reloader;

type Answer = Result<Option<RouteAnswer>, RefusedRouteChange>;

impl AgreedFollower {
    /// Lets the change that is being staged be older than it is.
    #[cfg(test)]
    pub(in crate::reload) fn age_staging(&mut self, age: std::time::Duration) {
        if let Some(staging) = &mut self.staging {
            staging.since = Instant::now().checked_sub(age).unwrap_or(staging.since);
        }
    }

    /// Looks at the store for a change.
    fn look_for(&self, staging: &RouteStaging) -> (StagingLook, std::sync::Arc<AgreedView>) {
        let key = &staging.key;
        // Before the view: it has the entry of a proposal that was accepted.
        let is_proposed = self.handle.is_proposed(key);
        let view = self.handle.view();
        let stored = view.stored(key);
        let by = stored.map_or("", |stored| &stored.entry.by);
        let entry = stored.map_or(FoundEntry::Gone, |stored| {
            staging.find(
                RouteDecision::of(&stored.entry).as_ref(),
                by == self.handle.router(),
            )
        });
        let others = self.live_routers();
        let named = others.iter().find(|other| other.router == by);
        let look = StagingLook {
            is_synced: view.is_synced,
            is_proposed,
            refusal: view.refusal(key).map(str::to_owned),
            has_room: view.has_room(key),
            entry,
            judged: view.judged(key),
            by: named
                .and_then(|other| other.name.as_deref())
                .unwrap_or(by)
                .to_owned(),
        };
        (look, view)
    }

    /// Proposes a decision on a staged change, over the revision by which it was judged.
    fn propose_step(&mut self, mut staging: RouteStaging, decision: RouteDecision, over: Judged) {
        let value = json!(decision);
        self.handle
            .propose_over(staging.key.clone(), value, over.clone(), None);
        (staging.over, staging.since) = (over, Instant::now());
        self.staging = Some(staging);
    }

    /// Gives a change up. The answer waits for the store: it may have the switch.
    fn give_up(&mut self, mut staging: RouteStaging, over: Judged, why: String) {
        staging.given_up = Some(why);
        let decision = staging.decision_before();
        self.propose_step(staging, decision, over);
    }

    /// Returns the progress of the routers that must stage a change, at this revision.
    fn progress(&self, staging: &RouteStaging, view: &AgreedView, revision: u64) -> StagingProgress {
        let key = &staging.key;
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
                Some((_, SubjectState::Staged | SubjectState::OnlyStaged(_) | SubjectState::Applied)) => {}
                Some((_, state)) if state.reason().is_some() => {
                    let why = state.reason().unwrap_or_default();
                    return StagingProgress::Refused(format!("router `{name}` cannot stage it: {why}"));
                }
                _ => missing.push(name),
            }
        }
        if missing.is_empty() {
            StagingProgress::Ready
        } else if staging.is_late() {
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
        let (look, view) = agreed.look_for(&staging);
        let answer = match staging.next(&look) {
            StagingStep::Wait => {
                agreed.staging = Some(staging);
                Ok(None)
            }
            StagingStep::GiveUp(over, why) => {
                agreed.give_up(staging, over, why);
                Ok(None)
            }
            StagingStep::Refuse(refused, over) => {
                if let Some(over) = over {
                    let value = json!(staging.decision_before());
                    agreed.handle.propose_over(staging.key, value, over, None);
                }
                Err(refused)
            }
            StagingStep::Advance | StagingStep::Switched => self.follow_stored(staging, &view),
        };
        Some(answer)
    }

    /// Moves a change on by the entry that the store has: the own decision, or the same one of another router.
    fn follow_stored(&mut self, mut staging: RouteStaging, view: &AgreedView) -> Answer {
        let stored = view.stored(&staging.key);
        let stored = stored.and_then(|stored| Some((stored.revision, RouteDecision::of(&stored.entry)?)));
        let Some((revision, decision)) = stored else {
            return Ok(None);
        };
        let has_switched = decision.staged.is_none();
        if !has_switched {
            staging.before = decision.active.clone();
            staging.was_undecided = decision.is_undecided;
        }
        // The route's number is that of the own file.
        let route = staging.decision.route;
        staging.decision = RouteDecision { route, ..decision };
        match has_switched {
            true => self.switched(staging, revision),
            false => self.advance(staging, view, revision),
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
    fn advance(&mut self, staging: RouteStaging, view: &AgreedView, revision: u64) -> Answer {
        let Some(agreed) = self.agreed.as_mut() else {
            return Ok(None);
        };
        match agreed.progress(&staging, view, revision) {
            StagingProgress::Waiting => agreed.staging = Some(staging),
            StagingProgress::Ready => {
                let (key, switch) = (staging.key.clone(), staging.switch());
                let staging = RouteStaging {
                    decision: switch.clone(),
                    ..staging
                };
                agreed.propose_step(staging, switch, view.judged(&key));
            }
            StagingProgress::Refused(why) => {
                let judged = view.judged(&staging.key);
                agreed.give_up(staging, judged, why);
            }
        }
        Ok(None)
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
                && !decision.is_undecided
                && decision.fingerprint == fingerprint
                && handle.has_applied(&key, known.revision)
        };
        RouteDecision::of(&known.entry).filter(is_followed)
    }

    /// Returns whether the fleet has decided on the route's policies of these overlays, and this router follows that:
    /// the change was made already, by this or another router.
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
                is_undecided: false,
            };
            agreed.handle.propose(key, json!(decision), objects);
        }
    }
}
