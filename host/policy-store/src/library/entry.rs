//! Entry of one policy: its chain of versions, and the versions that an operator rolled back.

use std::time::SystemTime;

use policy_runtime::PolicySettings;
use thiserror::Error;

use super::component::SourceStamp;
use super::digest::Digest;
use super::saved_rollback::{SavedRollback, VersionIdentity};
use super::version::{KeptBytes, LoadedVersion};
use super::{Permit, PolicySource, WantedPolicy};

/// Versions that are kept, those rolled back among them.
const KEPT: usize = 3;

/// Content of a source, which is not read again while its stamp stays the same.
#[derive(Debug, Clone)]
pub(super) struct SourceContent {
    pub(super) source: PolicySource,
    pub(super) seen: SourceStamp,
    pub(super) digest: Digest,
}

/// Error of a rollback or a resumption.
#[derive(Debug, Error)]
pub enum RollbackError {
    /// The policy does not exist.
    #[error("there is no policy `{0}`")]
    NoSuchPolicy(String),
    /// The policy is a pipeline of other policies.
    #[error("`{0}` is a pipeline and has no versions of its own: change one of its scorers, {1}")]
    Pipeline(String, String),
    /// The active version has no previous version.
    #[error(
        "the policy `{0}` has no previous version: the last three working versions are kept while the router runs"
    )]
    NothingBefore(String),
}

/// Accepted policy: the active configuration names it, or it is in the policy folder.
#[derive(Debug, Clone)]
pub(super) struct PolicyEntry {
    pub(super) wanted: WantedPolicy,
    pub(super) found: Option<SourceContent>,
    /// Active version, then the versions before it, the latest first. Empty while no version has worked.
    pub(super) chain: Vec<LoadedVersion>,
    /// Rolled-back versions, the latest first.
    pub(super) held: Vec<LoadedVersion>,
    /// Versions that were rolled back in an earlier run, the latest first.
    pub(super) barred: Vec<VersionIdentity>,
    /// Rollback as its file has it.
    pub(super) kept: Option<SavedRollback>,
    pub(super) problem: Option<String>,
    /// True while a new version is compiled.
    pub(super) is_loading: bool,
    /// Versions activated since start.
    pub(super) swaps: u64,
    /// Openings of the active version's circuit that are counted already.
    openings_counted: u64,
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
            openings_counted: 0,
        }
    }

    /// Returns the chain of versions with `fresh` as the active one.
    pub(super) fn after<'a>(
        entry: Option<&'a Self>,
        fresh: Option<&'a LoadedVersion>,
    ) -> impl Iterator<Item = &'a LoadedVersion> {
        let kept = entry.into_iter().flat_map(|entry| &entry.chain);
        let others =
            kept.filter(move |kept| !fresh.is_some_and(|fresh| kept.is_of(&fresh.digest, &fresh.settings)));
        fresh.into_iter().chain(others).take(KEPT)
    }

    /// Returns the active version.
    pub(super) fn active(&self) -> Option<&LoadedVersion> {
        self.chain.first()
    }

    /// Returns true if only the bytes of a wanted policy may be new: source, settings and permit are accepted already.
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

    /// Returns the version of these bytes and settings, if it is kept.
    pub(super) fn kept(&self, digest: &Digest, settings: &PolicySettings) -> Option<&LoadedVersion> {
        self.chain.iter().find(|kept| kept.is_of(digest, settings))
    }

    /// Returns true if an operator rolled back the version. If its bytes are active, only settings were rolled
    /// back.
    pub(super) fn holds(&self, digest: &Digest, settings: &PolicySettings) -> bool {
        let in_force = self.active().is_some_and(|active| active.digest == *digest);
        let mut held = self.rolled_back();
        held.any(|held| held.digest() == Some(*digest) && (!in_force || held.settings() == *settings))
    }

    /// Returns every version that was rolled back, the latest first.
    pub(super) fn rolled_back(&self) -> impl Iterator<Item = VersionIdentity> {
        let held = self.held.iter().map(LoadedVersion::identity);
        held.chain(self.barred.iter().cloned())
    }

    /// Returns the content of its rollback file, if anything is rolled back.
    pub(super) fn rollback(&self) -> Option<(SavedRollback, KeptBytes)> {
        let held: Vec<_> = self.rolled_back().collect();
        let active = self.active().filter(|_| !held.is_empty())?;
        let kept = SavedRollback::new(active.identity(), held);
        Some((kept, active.bytes.clone()?))
    }

    /// Forgets all rollbacks.
    pub(super) fn release(&mut self) {
        self.held.clear();
        self.barred.clear();
    }

    /// Returns true if some version may decide under this permit.
    pub(super) fn has_any(&self, permit: &Permit) -> bool {
        self.chain.iter().any(|kept| !permit.revokes(&kept.digest))
    }

    /// Returns true if the version has the bytes and settings of the active one.
    pub(super) fn is_active(&self, version: &LoadedVersion) -> bool {
        self.active()
            .is_some_and(|active| active.is_of(&version.digest, &version.settings))
    }

    /// Puts the active version with another circuit in its place, and forgets all rollbacks.
    pub(super) fn replace_active(&mut self, version: LoadedVersion) {
        self.release();
        self.openings_counted = version.circuit.openings();
        if let Some(active) = self.chain.first_mut() {
            *active = version;
        }
    }

    /// Activates a version, and forgets all rollbacks.
    pub(super) fn activate(&mut self, version: LoadedVersion) {
        self.chain
            .retain(|kept| !kept.is_of(&version.digest, &version.settings));
        self.release();
        self.chain.insert(0, version);
        self.chain.truncate(KEPT);
        self.begin();
    }

    /// Activates the version before, and holds the active one back.
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

    /// Releases all rollbacks, and forgets the content of the source.
    pub(super) fn resume(&mut self) {
        let place = self.chain.len().min(1);
        let permit = &self.wanted.permit;
        let may_decide = self.held.drain(..).filter(|held| !permit.revokes(&held.digest));
        self.chain.splice(place..place, may_decide);
        self.barred.clear();
        self.found = None;
    }

    /// Forgets every version that may decide. Rollbacks stay until other bytes come.
    pub(super) fn clear(&mut self) {
        self.chain.clear();
    }

    /// Returns how often the active version's circuit opened since the last call, if a version before it decided then.
    pub(super) fn new_rollbacks(&mut self) -> u64 {
        let Some((active, before)) = self.chain.split_first() else {
            return 0;
        };
        let openings = active.circuit.openings();
        let new = openings.saturating_sub(self.openings_counted);
        self.openings_counted = openings;
        if before.iter().any(LoadedVersion::decides) {
            new
        } else {
            0
        }
    }

    /// Drops the warm instances of versions that decide nothing. They keep their code.
    pub(super) fn release_spare_instances(&self) {
        let before = match self.chain.split_first() {
            Some((active, before)) if active.decides() => before,
            _ => &[],
        };
        for version in before.iter().chain(&self.held) {
            version.policy.release_instances();
        }
    }

    /// Records that another version is active.
    pub(super) fn begin(&mut self) {
        self.swaps += 1;
        if let Some(active) = self.chain.first_mut() {
            active.since = SystemTime::now();
            self.openings_counted = active.circuit.openings();
        }
    }
}
