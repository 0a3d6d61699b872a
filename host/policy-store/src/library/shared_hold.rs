//! Rollbacks that the routers of one fleet share: a router obeys what another one rolled back.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::entry::PolicyEntry;
use super::loading::{LoadJob, LoadOrder};
use super::prepared::Outcome;
use super::saved_rollback::VersionIdentity;
use super::version::LoadedVersion;
use super::{PolicyLibrary, PolicyProblem, WantedPolicy, builtin_bytes};

/// Versions of a policy that are held back, and the version to go back to. Without held versions, the file decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SharedHold {
    /// Name of the policy.
    pub policy: String,
    /// Version that decides instead.
    pub active: Option<VersionIdentity>,
    /// Versions that are held back, the latest first.
    pub held: Vec<VersionIdentity>,
}

/// State of a shared rollback at this router.
#[derive(Debug)]
pub enum HoldState {
    /// Obeyed already.
    Applied,
    /// Obeyed now: routes are to be built again.
    Changed,
    /// The file is to be read again: the rollback ended.
    Resumed,
    /// The bytes of this SHA-256 are missing.
    NeedsBytes(String),
    /// The version is being compiled.
    Loading,
    /// The policy is not one of this router.
    Unknown,
    /// Not to be obeyed, for this reason.
    Refused(Arc<PolicyProblem>),
}

impl PolicyLibrary {
    /// Keeps the bytes of all versions, so that a rollback to them can be shared.
    pub fn keep_bytes(&mut self) {
        self.keeps_bytes = true;
    }

    /// Returns the rollback of a policy for the other routers, and the bytes of its active version.
    #[must_use]
    pub fn share_hold(&self, name: &str) -> Option<(SharedHold, Option<Arc<Vec<u8>>>)> {
        let entry = self.entries.get(name)?;
        let active = entry.active();
        let hold = SharedHold {
            policy: name.to_owned(),
            active: active.map(LoadedVersion::identity),
            held: entry.rolled_back().collect(),
        };
        let bytes = active.and_then(|active| active.bytes.as_ref());
        Some((hold, bytes.map(|bytes| Arc::new(bytes.to_vec()))))
    }

    /// Obeys a rollback of another router. `bytes` are those of its active version, with their hash checked.
    pub fn obey_hold(&mut self, hold: &SharedHold, bytes: Option<&[u8]>) -> HoldState {
        let Some(entry) = self.entries.get(&hold.policy) else {
            return HoldState::Unknown;
        };
        if hold.held.is_empty() {
            if entry.rolled_back().next().is_none() {
                return HoldState::Applied;
            }
            return match self.resume(&hold.policy) {
                Ok(_) => HoldState::Resumed,
                Err(_) => HoldState::Unknown,
            };
        }
        let is_held = |version: &LoadedVersion| hold.held.contains(&version.identity());
        if !entry.active().is_some_and(is_held) {
            return HoldState::Applied;
        }
        let (wanted, digest) = match self.wanted_then(hold) {
            Ok(found) => found,
            Err(state) => return state,
        };
        let found = self.found_then(hold, wanted, digest, bytes);
        // A version before it that is not rolled back, where the one to go back to cannot be had.
        let entry = self.entries.get(&hold.policy);
        let other = entry.and_then(|entry| entry.chain.iter().find(|version| !is_held(version)));
        if let (HoldState::Refused(_), Some(other)) = (&found, other.cloned()) {
            self.bar(hold, other);
            return HoldState::Changed;
        }
        found
    }

    /// Returns the policy with the settings of the version to go back to.
    fn wanted_then(&self, hold: &SharedHold) -> Result<(WantedPolicy, Digest), HoldState> {
        let entry = self.entries.get(&hold.policy).ok_or(HoldState::Unknown)?;
        let active = hold.active.as_ref();
        let digest = active.and_then(VersionIdentity::digest);
        let (Some(active), Some(digest)) = (active, digest) else {
            return Err(HoldState::Refused(Arc::new(PolicyProblem::HeldBack)));
        };
        if let Err(refused) = entry.wanted.permit.check(&digest) {
            return Err(HoldState::Refused(Arc::new(refused)));
        }
        let settings = active.settings();
        let wanted = WantedPolicy {
            settings,
            ..entry.wanted.clone()
        };
        Ok((wanted, digest))
    }

    /// Finds the version to go back to, or starts to load it.
    fn found_then(
        &mut self,
        hold: &SharedHold,
        wanted: WantedPolicy,
        digest: Digest,
        bytes: Option<&[u8]>,
    ) -> HoldState {
        let entry = self.entries.get(&hold.policy);
        let kept = entry
            .and_then(|entry| entry.kept(&digest, &wanted.settings))
            .cloned();
        if let Some(version) = kept {
            self.bar(hold, version);
            return HoldState::Changed;
        }
        match self.attempts.outcome(&wanted, &digest) {
            Some(Outcome::Fresh(version)) => {
                self.attempts.forget_one(&hold.policy, &digest, &wanted.settings);
                self.bar(hold, *version);
                return HoldState::Changed;
            }
            Some(Outcome::Failed(problem)) => return HoldState::Refused(problem),
            _ => {}
        }
        let Some(loading) = &mut self.loading else {
            return HoldState::Loading;
        };
        let is_ordered = loading.is_ordered(&hold.policy, &digest, &wanted.settings);
        if is_ordered || !loading.has_room_for(&hold.policy) {
            return HoldState::Loading;
        }
        let bytes = bytes.map(<[u8]>::to_vec).or_else(|| builtin_bytes(&digest));
        let Some(bytes) = bytes else {
            return HoldState::NeedsBytes(routing::hex(&digest));
        };
        loading.order(LoadJob {
            order: LoadOrder {
                policy: hold.policy.clone(),
                digest,
                settings: wanted.settings.clone(),
            },
            bytes: Arc::new(Cow::Owned(bytes)),
            state: self.memory.of(&hold.policy),
        });
        HoldState::Loading
    }

    /// Holds versions back, and activates another one instead.
    fn bar(&mut self, hold: &SharedHold, instead: LoadedVersion) {
        if let Some(entry) = self.entries.get_mut(&hold.policy) {
            entry.bar(&hold.held, instead);
            self.hold_in_twin(&hold.policy);
        }
        self.keep_rollbacks();
    }
}

impl PolicyEntry {
    /// Holds versions back, and activates another one instead.
    fn bar(&mut self, held: &[VersionIdentity], version: LoadedVersion) {
        let known: Vec<VersionIdentity> = self.rolled_back().collect();
        let fresh = held.iter().filter(|held| !known.contains(held));
        self.barred.extend(fresh.cloned());
        let (digest, settings) = (version.digest, version.settings.clone());
        self.chain
            .retain(|kept| !kept.is_of(&digest, &settings) && !held.contains(&kept.identity()));
        self.chain.insert(0, version);
        self.begin();
    }
}
