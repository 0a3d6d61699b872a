//! Decisions of the fleet: applied on the reload thread, the only writer, and proposed by it.
//!
//! Each look compares the store's entries with the active state, so an entry that could not be followed is
//! tried again when its cause ends. The thread never waits for the store.

mod begin;
mod holds;
mod instances;
mod route_decision;
mod routes;
mod staged_change;
mod staging;
mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agreement::{AgreedKey, AgreedKind, SubjectState};
use observability::error_chain;
use replica_plane::{AgreedHandle, AgreedView, ReplicaReports, RouterRow, ViewEntry};
use runtime_overrides::Overlays;
use tracing::{info, warn};

pub(super) use self::begin::ChangeWay;
use self::instances::LostInstance;
use self::staged_change::RouteStaging;
use super::{Candidate, Reloader};

/// Follower of the fleet's decisions.
pub(crate) struct AgreedFollower {
    handle: AgreedHandle,
    /// Reports on the other routers, for those that must stage a change.
    reports: ReplicaReports,
    /// Change of a route that the fleet prepares for this router.
    staging: Option<RouteStaging>,
    /// Overlays that could not be applied beside the active configuration: they would fail in the same way until the
    /// entries or the configuration change.
    refused: Option<(u64, String)>,
    /// Set while the routes are older than the versions of policies that the fleet decided.
    needs_routes: bool,
    /// Instances with a decision that this router does not have, by URL: others may have them.
    lost: BTreeMap<String, LostInstance>,
    /// Revision of each decision on a route, and the time at which this router first saw it.
    seen: BTreeMap<AgreedKey, (u64, Instant)>,
    /// Silence after which a router is away.
    forget_after: Duration,
    /// Time since which the bus is connected and no other router is heard.
    alone_since: Option<Instant>,
    /// Opening of the store for which the bytes of followed decisions were offered.
    offered_at: u64,
}

/// Entries of one look, and the overlays that they make.
struct AgreedLook {
    handle: AgreedHandle,
    view: Arc<AgreedView>,
    overlays: Overlays,
    states: BTreeMap<AgreedKey, (u64, SubjectState)>,
}

impl AgreedFollower {
    /// Returns the follower. `forget_after`: the silence after which a router is away.
    pub(crate) fn new(handle: AgreedHandle, reports: ReplicaReports, forget_after: Duration) -> Self {
        Self {
            handle,
            reports,
            staging: None,
            refused: None,
            needs_routes: false,
            lost: BTreeMap::new(),
            seen: BTreeMap::new(),
            forget_after,
            alone_since: None,
            offered_at: 0,
        }
    }

    /// Calls `wake` when the entries change.
    pub(crate) fn on_change(&self, wake: impl Fn() + Send + 'static) {
        self.handle.on_change(wake);
    }

    /// Records a commit: its routes have the versions that the fleet decided, and refused overlays may fit beside it.
    pub(super) fn note_commit(&mut self) {
        self.refused = None;
        self.needs_routes = false;
    }

    /// Returns the other routers that serve, or are about to.
    fn live_routers(&self) -> Vec<RouterRow> {
        let mut others = self.known_routers();
        others.retain(|other| matches!(other.state, "ready" | "starting"));
        others
    }

    /// Returns the other routers that did not say goodbye. Some may be silent.
    fn known_routers(&self) -> Vec<RouterRow> {
        let others = self.reports.get().map(|report| report.others);
        let mut others = others.unwrap_or_default();
        others.retain(|other| other.state != "draining");
        others
    }

    /// Records whether other routers are known.
    fn note_others(&mut self) {
        let is_connected = self.reports.get().is_some_and(|report| report.connected);
        let is_alone = is_connected && self.known_routers().is_empty();
        let since = self.alone_since.unwrap_or_else(Instant::now);
        self.alone_since = is_alone.then_some(since);
    }

    /// Returns whether no other router is known, and none was heard for long enough on a connected bus.
    fn is_alone(&self) -> bool {
        let since = self.alone_since.filter(|_| self.known_routers().is_empty());
        since.is_some_and(|since| since.elapsed() >= self.forget_after)
    }

    /// Records the revision of a decision on a route.
    fn note_seen(&mut self, key: &AgreedKey, revision: u64) {
        let now = (revision, Instant::now());
        let seen = self.seen.entry(key.clone()).or_insert(now);
        if seen.0 != revision {
            *seen = now;
        }
    }

    /// Records the revision of a decision that this router cannot follow yet.
    fn note_again(&mut self, key: &AgreedKey, revision: u64) {
        self.seen.insert(key.clone(), (revision, Instant::now()));
    }

    /// Forgets which instances this router had.
    #[cfg(test)]
    pub(in crate::reload) fn forget_lost(&mut self) {
        self.lost.clear();
    }

    /// Lets the revisions be seen, the other routers be away and the instances be lost for longer.
    #[cfg(test)]
    pub(in crate::reload) fn age_looks(&mut self, age: Duration) {
        let seen = self.seen.values_mut().map(|(_, since)| since);
        let lost = self.lost.values_mut().map(|lost| &mut lost.since);
        for since in seen.chain(lost).chain(&mut self.alone_since) {
            *since = since.checked_sub(age).unwrap_or(*since);
        }
    }

    /// Returns whether the store answers.
    fn is_synced(&self) -> bool {
        self.handle.view().is_synced
    }
}

impl AgreedLook {
    fn set(&mut self, key: &AgreedKey, known: &ViewEntry, state: SubjectState) {
        self.states.insert(key.clone(), (known.revision, state));
    }

    /// Reports the applied rollbacks as not applied yet: routes still have the versions before.
    fn keep_holds_working(&mut self) {
        for (key, (_, state)) in &mut self.states {
            if key.kind() == AgreedKind::Hold && *state == SubjectState::Applied {
                *state = SubjectState::Working;
            }
        }
    }

    /// Returns whether parts of a decision are on their way.
    fn has_working(&self) -> bool {
        let mut states = self.states.values();
        states.any(|(_, state)| *state == SubjectState::Working)
    }

    /// Returns whether the entry was followed at an earlier look.
    fn was_applied(&self, key: &AgreedKey, known: &ViewEntry) -> bool {
        self.handle.has_applied(key, known.revision)
    }
}

impl Reloader {
    /// Applies the fleet's decisions, and reports the state of each.
    pub(super) fn follow_agreed(&mut self) {
        let Some(agreed) = &mut self.agreed else {
            return;
        };
        agreed.note_others();
        let (handle, live) = (agreed.handle.clone(), agreed.live_routers());
        let mut look = AgreedLook {
            view: handle.view(),
            handle,
            overlays: self.active.overlays.clone(),
            states: BTreeMap::new(),
        };
        let view = Arc::clone(&look.view);
        let (mut swaps, mut resumes) = (false, false);
        for (key, known) in view.followed() {
            match key.kind() {
                AgreedKind::Hold => {
                    let (swapped, resumed) = self.follow_hold(&mut look, &key, &known);
                    swaps |= swapped;
                    resumes |= resumed;
                }
                AgreedKind::Instance => self.follow_instance(&mut look, &key, &known),
                AgreedKind::Route => self.follow_route(&mut look, &key, &known),
                // The task of the agreement stops and resumes canaries.
                AgreedKind::Canary => look.set(&key, &known, SubjectState::Applied),
            }
        }
        self.renew_policies(swaps, resumes);
        self.apply_agreed(&mut look);
        if self.needs_routes() {
            look.keep_holds_working();
        }
        let has_all = view.is_synced && !look.has_working();
        for (key, (revision, state)) in look.states {
            look.handle.set_state(&key, revision, state);
        }
        look.handle
            .settle_states(|router| live.iter().any(|other| other.router == router));
        if has_all {
            look.handle.note_followed();
            self.keep_objects(&view);
        }
        if let Some(agreed) = &mut self.agreed {
            agreed.seen.retain(|key, _| view.followed_one(key).is_some());
        }
        self.propose_lost(&view, &live);
    }

    /// Builds the routes again after policies went back to other versions. If that fails, the next look tries again.
    pub(super) fn renew_policies(&mut self, swaps: bool, resumes: bool) {
        if let Some(agreed) = &mut self.agreed {
            agreed.needs_routes |= swaps;
        }
        if self.needs_routes()
            && let Err(refused) = self.renew_routes()
            // Later failures have the same cause.
            && swaps
        {
            let error = error_chain(&refused);
            warn!(
                error,
                "failed to build the request path with the fleet's policies; it is tried again"
            );
        }
        if resumes {
            let prepared = self.library.prepare(self.wanted_policies());
            self.swap_policies(prepared);
        }
    }

    /// Returns `true` while the routes are older than the versions of policies that the fleet decided.
    pub(super) fn needs_routes(&self) -> bool {
        self.agreed.as_ref().is_some_and(|agreed| agreed.needs_routes)
    }

    /// Applies the overlays of a look, if they differ from the active ones.
    fn apply_agreed(&mut self, look: &mut AgreedLook) {
        if look.overlays == self.active.overlays {
            return;
        }
        let generation = look.view.generation;
        let refused = self.agreed.as_ref().and_then(|agreed| agreed.refused.clone());
        let why = match refused.filter(|(known, _)| *known == generation) {
            Some((_, why)) => why,
            None => {
                let candidate = Candidate {
                    overlays: look.overlays.clone(),
                    ..self.active.candidate()
                };
                match self.plan(candidate, None) {
                    Ok(plan) => {
                        self.commit(plan);
                        self.report_overlays(None);
                        self.report_routes();
                        let generation = self.active.generation.0;
                        info!(generation, "decisions of the fleet are applied");
                        return;
                    }
                    Err(refused) => {
                        let why = error_chain(&refused);
                        warn!(
                            why,
                            "failed to apply the fleet's decisions: the configuration before stays"
                        );
                        why
                    }
                }
            }
        };
        let kinds = [AgreedKind::Instance, AgreedKind::Route];
        let concerned = look
            .states
            .iter_mut()
            .filter(|(key, _)| kinds.contains(&key.kind()));
        for (_, (_, state)) in concerned.filter(|(_, (_, state))| *state == SubjectState::Applied) {
            *state = SubjectState::Refused(why.clone());
        }
        if let Some(agreed) = &mut self.agreed {
            agreed.refused = Some((generation, why));
        }
    }
}
