//! What the library keeps of one policy: its versions in a chain, and those that an operator rolled back.

use std::time::SystemTime;

use policy_runtime::PolicySettings;
use thiserror::Error;

use super::component::{Digest, SourceStamp};
use super::saved_rollback::{SavedRollback, VersionIdentity};
use super::version::{KeptBytes, LoadedVersion};
use super::{Permit, PolicySource, WantedPolicy};

/// Versions that are kept, those rolled back among them.
const KEPT: usize = 3;

/// What a source holds, so that it is not read again while it looks the same.
#[derive(Debug, Clone)]
pub(super) struct SourceContent {
    pub(super) source: PolicySource,
    pub(super) seen: SourceStamp,
    pub(super) digest: Digest,
}

/// Why a policy cannot be rolled back or resumed.
#[derive(Debug, Error)]
pub enum RollbackError {
    /// No such policy.
    #[error("there is no policy `{0}`")]
    NoSuchPolicy(String),
    /// It is made of others.
    #[error("`{0}` is a pipeline and has no versions of its own: change one of its scorers, {1}")]
    Pipeline(String, String),
    /// It has but one version, or none.
    #[error(
        "the policy `{0}` has no version before the one in force: the last three that worked are kept, while the router runs"
    )]
    NothingBefore(String),
}

/// A policy that was accepted: some configuration in force names it, or it lies in the folder.
#[derive(Debug, Clone)]
pub(super) struct PolicyEntry {
    pub(super) wanted: WantedPolicy,
    pub(super) found: Option<SourceContent>,
    /// The version in force, then those before it, the latest first. Empty while no version ever worked.
    pub(super) chain: Vec<LoadedVersion>,
    /// Versions that were rolled back, the latest first.
    pub(super) held: Vec<LoadedVersion>,
    /// Those that were rolled back in another run of the router, the latest first.
    pub(super) barred: Vec<VersionIdentity>,
    /// The rollback as its file has it.
    pub(super) kept: Option<SavedRollback>,
    pub(super) problem: Option<String>,
    /// Whether bytes of it are being compiled.
    pub(super) is_loading: bool,
    /// Versions put in force since start.
    pub(super) swaps: u64,
    /// Openings of the circuit of the version in force that were counted already.
    openings_told: u64,
}

impl PolicyEntry {
    pub(super) fn new(wanted: WantedPolicy) -> Self {
        Self {
            wanted,
            found: None,
            chain: Vec::new(),
            held: Vec::new(),
            barred: Vec::new(),
            kept: None,
            problem: None,
            is_loading: false,
            swaps: 0,
            openings_told: 0,
        }
    }

    /// The chain of versions as it is once `fresh` is in force.
    pub(super) fn after<'a>(
        entry: Option<&'a Self>,
        fresh: Option<&'a LoadedVersion>,
    ) -> impl Iterator<Item = &'a LoadedVersion> {
        let kept = entry.into_iter().flat_map(|entry| &entry.chain);
        let others =
            kept.filter(move |kept| !fresh.is_some_and(|fresh| kept.is_of(&fresh.digest, &fresh.settings)));
        fresh.into_iter().chain(others).take(KEPT)
    }

    /// The version in force.
    pub(super) fn active(&self) -> Option<&LoadedVersion> {
        self.chain.first()
    }

    /// Whether it is accepted with this source, these settings and this permit: only its bytes may be new.
    pub(super) fn accepts(&self, wanted: &WantedPolicy) -> bool {
        let is_permitted = |active: &LoadedVersion| {
            self.wanted.permit == wanted.permit || wanted.permit.allows(&active.digest)
        };
        self.wanted.source == wanted.source
            && self.wanted.settings == wanted.settings
            && self
                .active()
                .is_some_and(|active| is_permitted(active) && active.does(wanted))
    }

    /// A version of these bytes and settings that is kept.
    pub(super) fn kept(&self, digest: &Digest, settings: &PolicySettings) -> Option<&LoadedVersion> {
        self.chain.iter().find(|kept| kept.is_of(digest, settings))
    }

    /// Whether an operator rolled back what is wanted now. With its bytes in force, what was rolled back can only be settings.
    pub(super) fn holds(&self, digest: &Digest, wanted: &WantedPolicy) -> bool {
        let in_force = self.active().is_some_and(|active| active.digest == *digest);
        let mut held = self.rolled_back();
        held.any(|held| held.digest() == Some(*digest) && (!in_force || held.settings() == wanted.settings))
    }

    /// Returns every version that was rolled back, the latest first.
    pub(super) fn rolled_back(&self) -> impl Iterator<Item = VersionIdentity> {
        let held = self.held.iter().map(LoadedVersion::identity);
        held.chain(self.barred.iter().cloned())
    }

    /// Returns what its file should say; none where nothing is rolled back.
    pub(super) fn rollback(&self) -> Option<(SavedRollback, KeptBytes)> {
        let held: Vec<_> = self.rolled_back().collect();
        let active = self.active().filter(|_| !held.is_empty())?;
        let kept = SavedRollback::new(active.identity(), held);
        Some((kept, active.bytes.clone()?))
    }

    /// Nothing is rolled back any more.
    pub(super) fn release(&mut self) {
        self.held.clear();
        self.barred.clear();
    }

    /// Whether a version is left that may decide under this permit.
    pub(super) fn has_any(&self, permit: &Permit) -> bool {
        self.chain.iter().any(|kept| !permit.revokes(&kept.digest))
    }

    /// Puts a version in front of the chain. What was rolled back is over with.
    pub(super) fn activate(&mut self, version: LoadedVersion) {
        self.chain
            .retain(|kept| !kept.is_of(&version.digest, &version.settings));
        self.release();
        self.chain.insert(0, version);
        self.chain.truncate(KEPT);
        self.begin();
    }

    /// Puts the version before in force, and holds the one that was in force.
    pub(super) fn roll_back(&mut self) -> Result<(), RollbackError> {
        let before = self.chain.get(1);
        if !before.is_some_and(|before| before.does(&self.wanted)) {
            return Err(RollbackError::NothingBefore(self.wanted.name.clone()));
        }
        let bad = self.chain.remove(0);
        self.held.insert(0, bad);
        self.begin();
        Ok(())
    }

    /// Holds nothing any more, and forgets what the file held.
    pub(super) fn resume(&mut self) {
        let place = self.chain.len().min(1);
        let permit = &self.wanted.permit;
        let may_decide = self.held.drain(..).filter(|held| !permit.revokes(&held.digest));
        self.chain.splice(place..place, may_decide);
        self.barred.clear();
        self.found = None;
    }

    /// Forgets every version that might decide. What was rolled back stays so until other bytes come.
    pub(super) fn clear(&mut self) {
        self.chain.clear();
    }

    /// Times since the last asking that the version in force was not asked any more and one before it was.
    pub(super) fn new_rollbacks(&mut self) -> u64 {
        let Some((active, before)) = self.chain.split_first() else {
            return 0;
        };
        let openings = active.circuit.openings();
        let new = openings.saturating_sub(self.openings_told);
        self.openings_told = openings;
        if before.iter().any(LoadedVersion::decides) {
            new
        } else {
            0
        }
    }

    /// Gives up the warm instances of versions that decide nothing: they keep their code only.
    pub(super) fn release_spare_instances(&self) {
        let before = match self.chain.split_first() {
            Some((active, before)) if active.decides() => before,
            _ => &[],
        };
        for version in before.iter().chain(&self.held) {
            version.policy.release_instances();
        }
    }

    /// Another version is in force.
    fn begin(&mut self) {
        self.swaps += 1;
        if let Some(active) = self.chain.first_mut() {
            active.since = SystemTime::now();
            self.openings_told = active.circuit.openings();
        }
    }
}
