//! Policies of routes: followed once the fleet switches to them, and held ready before.

use std::collections::BTreeMap;
use std::sync::Arc;

use agreement::{AgreedKey, AgreedKind, SubjectState};
use conductor_config::Config;
use observability::error_chain;
use policy_store::{
    PolicySource, SharedHold, UploadRules, WantedPolicy, awaited_policies, component_bytes, components,
    unavailable_policies, wanted_policies,
};
use replica_plane::{AgreedView, ObjectState, ViewEntry};
use runtime_overrides::{Overlays, SharedOverride};

use super::AgreedLook;
use super::route_decision::{RouteDecision, RouteVersion};
use crate::reload::{Candidate, Reloader};

/// Bytes of components, by their SHA-256.
pub(super) type ComponentObjects = BTreeMap<String, Arc<Vec<u8>>>;

impl Reloader {
    /// Follows a decision on a route. Own proposals are followed once the store has them.
    pub(super) fn follow_route(&mut self, look: &mut AgreedLook, key: &AgreedKey, known: &ViewEntry) {
        if known.revision == 0 {
            return;
        }
        if let Some(agreed) = &mut self.agreed {
            agreed.note_seen(key, known.revision);
        }
        let state = match serde_json::from_value::<RouteDecision>(known.entry.value.clone()) {
            Ok(decision) => self.follow_decision(look, key, known, &decision),
            Err(error) => SubjectState::Refused(error.to_string()),
        };
        if let Some(agreed) = &mut self.agreed
            && state.reason().is_some()
        {
            // Once the reason is gone, the router begins to follow it.
            agreed.note_again(key, known.revision);
        }
        look.set(key, known, state);
    }

    fn follow_decision(
        &mut self,
        look: &mut AgreedLook,
        key: &AgreedKey,
        known: &ViewEntry,
        decision: &RouteDecision,
    ) -> SubjectState {
        let active = self.follow_active(look, key, known, decision);
        let Some(staged) = &decision.staged else {
            return active;
        };
        match active {
            SubjectState::Applied => self.hold_staged(look, &decision.fingerprint, staged),
            // The switch ends active policies that this router cannot have.
            SubjectState::Refused(why) => match self.hold_staged(look, &decision.fingerprint, staged) {
                SubjectState::Staged => SubjectState::OnlyStaged(why),
                other => other,
            },
            active => active,
        }
    }

    /// Follows the active policies of a decision. Before the first switch of a route, each router keeps its own.
    fn follow_active(
        &mut self,
        look: &mut AgreedLook,
        key: &AgreedKey,
        known: &ViewEntry,
        decision: &RouteDecision,
    ) -> SubjectState {
        let Some(overlays) =
            self.with_route(&look.overlays, &decision.fingerprint, &decision.active.policies)
        else {
            return SubjectState::Elsewhere(
                "the configuration file of this router has no such route".to_owned(),
            );
        };
        if decision.is_undecided {
            return SubjectState::Applied;
        }
        if !look.was_applied(key, known) {
            match self.have_components(look, &decision.active) {
                Ok(true) => {}
                Ok(false) => return SubjectState::Working,
                Err(why) => return SubjectState::Refused(why),
            }
            match self.hold_ready(&overlays) {
                SubjectState::Staged => {}
                other => return other,
            }
        }
        look.overlays = overlays;
        SubjectState::Applied
    }

    /// Holds the staged policies of a decision ready.
    fn hold_staged(&mut self, look: &AgreedLook, fingerprint: &str, staged: &RouteVersion) -> SubjectState {
        match self.have_components(look, staged) {
            Ok(true) => {}
            Ok(false) => return SubjectState::Working,
            Err(why) => return SubjectState::Refused(why),
        }
        match self.with_route(&look.overlays, fingerprint, &staged.policies) {
            Some(overlays) => self.hold_ready(&overlays),
            None => SubjectState::Working,
        }
    }

    /// Returns the overlays with other policies for a route; `None` if the file has no such route.
    fn with_route(
        &self,
        overlays: &Overlays,
        fingerprint: &str,
        shared: &SharedOverride,
    ) -> Option<Overlays> {
        let routes = overlays.routes().adopt(&self.active.file, fingerprint, shared)?;
        Some(overlays.with_routes(routes))
    }

    /// Loads the policies of overlays, and plans them. Nothing becomes active.
    fn hold_ready(&mut self, overlays: &Overlays) -> SubjectState {
        let config = overlays.over(&self.active.file);
        let prepared = self.library.prepare(wanted_policies(&config, &self.source));
        if let Some(first) = unavailable_policies(&config, &prepared).first() {
            return SubjectState::Refused(first.message.clone());
        }
        if !awaited_policies(&config, &prepared).is_empty() || prepared.is_unsettled() {
            return SubjectState::Working;
        }
        let candidate = Candidate {
            overlays: overlays.clone(),
            ..self.active.candidate()
        };
        match self.plan(candidate, Some(prepared)) {
            Ok(_) => SubjectState::Staged,
            Err(refused) => SubjectState::Refused(error_chain(&refused)),
        }
    }

    /// Returns whether this router has the components of a version. Missing ones are fetched into the policy folder.
    fn have_components(&self, look: &AgreedLook, version: &RouteVersion) -> Result<bool, String> {
        let rules = UploadRules::of(&self.active.file, &self.source);
        let wanted = self.wanted_policies();
        let mut have_all = true;
        for (name, sha256) in &version.components {
            let source = source_of(&rules, &wanted, name)?;
            if component_bytes(&source).is_ok_and(|(found, _)| found == *sha256) {
                continue;
            }
            if self.decides(name) {
                return Err(format!("`{name}` has other bytes here and is in use"));
            }
            let target = rules.target(name).map_err(|error| error_chain(&error))?;
            match look.handle.object(sha256) {
                ObjectState::Working => have_all = false,
                ObjectState::Failed(why) => return Err(format!("`{name}`: {why}")),
                ObjectState::Ready(bytes) => {
                    let stored = target.permit(&bytes).and_then(|_| target.store(&bytes));
                    stored.map_err(|error| error_chain(&error))?;
                }
            }
        }
        Ok(have_all)
    }

    /// Returns whether an active route has the policy.
    fn decides(&self, component: &str) -> bool {
        let config = &self.active.config;
        let mut routes = config.routes.iter();
        routes.any(|route| {
            let mut policies = route.policies();
            policies.any(|policy| components(config, policy).any(|known| known == component))
        })
    }

    /// Returns the policies of overlays for a route, with the bytes of their components.
    pub(super) fn route_version(
        &self,
        overlays: &Overlays,
        fingerprint: &str,
    ) -> Result<(RouteVersion, ComponentObjects), String> {
        let policies = overlays.routes().share(fingerprint);
        let config = overlays.over(&self.active.file);
        let wanted = wanted_policies(&config, &self.source);
        let (mut hashes, mut objects) = (BTreeMap::new(), BTreeMap::new());
        for policy in policies.policies() {
            for name in components(&config, policy) {
                let Some(WantedPolicy { source, .. }) = wanted.iter().find(|wanted| wanted.name == name)
                else {
                    continue;
                };
                let (sha256, bytes) = component_bytes(source).map_err(|problem| error_chain(&problem))?;
                if let PolicySource::File(_) = source {
                    objects.insert(sha256.clone(), Arc::new(bytes));
                }
                hashes.insert(name.to_owned(), sha256);
            }
        }
        let version = RouteVersion {
            policies,
            components: hashes,
        };
        Ok((version, objects))
    }

    /// Offers the bytes of followed decisions, once for each opening of the store: it may have lost them, with the
    /// routers that offered them before.
    pub(super) fn keep_objects(&mut self, view: &AgreedView) {
        let Some(agreed) = self
            .agreed
            .as_mut()
            .filter(|agreed| agreed.offered_at != view.openings)
        else {
            return;
        };
        agreed.offered_at = view.openings;
        let handle = agreed.handle.clone();
        let mut objects = ComponentObjects::new();
        for (key, known) in view.followed() {
            match key.kind() {
                AgreedKind::Hold => {
                    let hold = serde_json::from_value::<SharedHold>(known.entry.value).ok();
                    let shared = hold.and_then(|hold| self.library.share_hold(&hold.policy));
                    let active = shared.and_then(|(hold, bytes)| hold.active.zip(bytes));
                    objects.extend(active.map(|(active, bytes)| (active.sha256().to_owned(), bytes)));
                }
                AgreedKind::Route => {
                    let decision = RouteDecision::of(&known.entry);
                    let versions = decision
                        .into_iter()
                        .flat_map(|decision| std::iter::once(decision.active).chain(decision.staged));
                    for version in versions {
                        objects.extend(self.own_components(&version));
                    }
                }
                AgreedKind::Instance | AgreedKind::Canary => {}
            }
        }
        handle.keep_objects(objects);
    }

    /// Returns the components of a version that this router has in files.
    fn own_components(&self, version: &RouteVersion) -> ComponentObjects {
        let rules = UploadRules::of(&self.active.file, &self.source);
        let wanted = self.wanted_policies();
        let found = version.components.iter().filter_map(|(name, sha256)| {
            let source = source_of(&rules, &wanted, name).ok()?;
            let PolicySource::File(_) = source else {
                return None;
            };
            let (found, bytes) = component_bytes(&source).ok()?;
            (found == *sha256).then(|| (found, Arc::new(bytes)))
        });
        found.collect()
    }

    /// Returns the active file.
    pub(super) fn active_file(&self) -> &Config {
        &self.active.file
    }
}

/// Returns the source of a component: the configured or the built-in one, else its file in the policy folder.
fn source_of(rules: &UploadRules, wanted: &[WantedPolicy], name: &str) -> Result<PolicySource, String> {
    if let Some(known) = wanted.iter().find(|wanted| wanted.name == *name) {
        return Ok(known.source.clone());
    }
    if policy_store::builtin::find(name).is_some() {
        return Ok(PolicySource::Builtin(name.to_owned()));
    }
    let target = rules.target(name).map_err(|error| error_chain(&error))?;
    Ok(PolicySource::File(target.path().to_owned()))
}
