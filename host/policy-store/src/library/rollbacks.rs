//! Rollbacks in the state folder: written when they are made, restored at start, removed when they end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use observability::error_chain;
use tracing::{error, info};

use super::entry::PolicyEntry;
use super::saved_rollback::{ENDING, SavedRollback};
use super::version::LoadedVersion;
use super::{PolicyLibrary, WantedPolicy};

impl PolicyLibrary {
    /// Restores the rollbacks of another run, before policies are prepared.
    ///
    /// The active version is active again, and the rolled-back ones are held back. A rollback that cannot be restored
    /// is logged; the policy's file decides then.
    pub fn restore_rollbacks(&mut self, wanted: &[WantedPolicy]) {
        for wanted in wanted {
            if let Some(entry) = self.restored(wanted) {
                info!(
                    policy = wanted.name,
                    held = entry.barred.len(),
                    "a rollback of the last run is active again; `conductor policy resume` ends it"
                );
                self.entries.insert(wanted.name.clone(), entry);
            }
        }
    }

    fn restored(&self, wanted: &WantedPolicy) -> Option<PolicyEntry> {
        let policy = &wanted.name;
        let file = match self.memory.folder()?.get(policy, ENDING) {
            Ok(file) => file?,
            Err(error) => {
                error!(
                    policy,
                    error = error_chain(&error),
                    "failed to read the rollback of the last run: the policy's file is used"
                );
                return None;
            }
        };
        let refuse = |why: &str| {
            error!(
                policy,
                "the rollback of the last run is not restored: {why}; the policy's file is used"
            );
        };
        let Some((kept, component)) = SavedRollback::decode(&file) else {
            refuse("its file is damaged");
            return None;
        };
        let digest = kept.in_force.digest()?;
        if let Err(refused) = wanted.permit.check(&digest) {
            refuse(&refused.to_string());
            return None;
        }
        let settings = kept.in_force.settings();
        let state = self.memory.of(policy);
        let loaded = match self.loader.load(policy, component, &settings, state) {
            Ok(loaded) => loaded,
            Err(error) => {
                refuse(&error_chain(&error));
                return None;
            }
        };
        let wanted_then = WantedPolicy {
            settings,
            ..wanted.clone()
        };
        let version = LoadedVersion::new(Arc::new(loaded), digest, &wanted_then);
        if !version.does(wanted) {
            refuse("a pipeline has the policy as a scorer, and it is none");
            return None;
        }
        let bytes = Arc::new(Cow::Owned(component.to_vec()));
        let mut entry = PolicyEntry::new(wanted.clone());
        entry.chain.push(version.keeping(Some(bytes)));
        entry.barred.clone_from(&kept.held);
        entry.kept = Some(kept);
        Some(entry)
    }

    /// Writes the rollbacks that changed, and removes the files of those that ended.
    pub fn keep_rollbacks(&mut self) {
        let Some(folder) = self.memory.folder() else {
            return;
        };
        for (policy, entry) in &mut self.entries {
            let wanted = entry.rollback();
            if wanted.as_ref().map(|(kept, _)| kept) == entry.kept.as_ref() {
                continue;
            }
            let done = match &wanted {
                Some((kept, bytes)) => folder.put(policy, ENDING, &kept.encode(bytes)),
                None => folder.remove(policy, ENDING),
            };
            match done {
                Ok(()) => entry.kept = wanted.map(|(kept, _)| kept),
                Err(error) => error!(
                    policy,
                    error = error_chain(&error),
                    "failed to save a rollback: a restart would not restore it"
                ),
            }
        }
    }

    /// Removes the rollback files of policies that left the configuration.
    pub(super) fn forget_rollbacks(&self, gone: &BTreeMap<String, PolicyEntry>) {
        let Some(folder) = self.memory.folder() else {
            return;
        };
        for (policy, entry) in gone {
            if entry.kept.is_some()
                && let Err(error) = folder.remove(policy, ENDING)
            {
                error!(
                    policy,
                    error = error_chain(&error),
                    "failed to remove the file of a rollback"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use policy_runtime::{EngineLimits, PolicyEngine};

    use super::super::{Permit, component};
    use super::*;
    use crate::memory::PolicyMemory;

    const BEFORE: &str = "round-robin";
    const BAD: &str = "load-weighted";
    const OTHER: &str = "cache-aware";

    /// Returns the library of a router that was just started.
    fn started(folder: &Path, wanted: &WantedPolicy) -> PolicyLibrary {
        let memory = Arc::new(PolicyMemory::new(Some(folder.to_owned())));
        let engine = PolicyEngine::new(EngineLimits::default()).unwrap();
        let mut library = PolicyLibrary::new(engine, memory);
        library.restore_rollbacks(std::slice::from_ref(wanted));
        apply(&mut library, wanted);
        library
    }

    fn apply(library: &mut PolicyLibrary, wanted: &WantedPolicy) {
        let prepared = library.prepare(vec![wanted.clone()]);
        drop(library.commit(prepared));
    }

    /// Returns a policy with the bytes of a built-in one.
    fn wanted(builtin: &str) -> WantedPolicy {
        WantedPolicy::of_builtin("p", builtin)
    }

    /// Returns a library in which `BAD` replaced `BEFORE` and was rolled back.
    fn rolled_back(folder: &Path) -> PolicyLibrary {
        let mut library = started(folder, &wanted(BEFORE));
        apply(&mut library, &wanted(BAD));
        library.roll_back("p").unwrap();
        library.keep_rollbacks();
        library
    }

    /// Checks the active bytes.
    #[track_caller]
    fn check_in_force(library: &PolicyLibrary, builtin: &str) {
        let digest = component::read(&wanted(builtin).source).unwrap().digest();
        assert_eq!(library.entries["p"].chain[0].digest, digest);
    }

    fn kept(folder: &Path) -> bool {
        folder.join("p.rollback").is_file()
    }

    #[test]
    fn a_rollback_survives_a_restart_and_bytes_that_were_rolled_back_stay_out() {
        let folder = tempfile::tempdir().unwrap();
        let report = rolled_back(folder.path()).report().remove(0);
        assert_eq!((report.held_back.len(), report.rollback_kept), (1, Some(true)));
        for _ in 0..2 {
            let mut library = started(folder.path(), &wanted(BAD));
            check_in_force(&library, BEFORE);
            assert_eq!(library.report()[0].held_back, report.held_back);
            apply(&mut library, &wanted(BAD));
            check_in_force(&library, BEFORE);
        }
    }

    #[test]
    fn a_rollback_ends_for_good_with_other_bytes_and_when_it_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        drop(rolled_back(folder.path()));
        let mut library = started(folder.path(), &wanted(BAD));
        library.resume("p").unwrap();
        apply(&mut library, &wanted(BAD));
        check_in_force(&library, BAD);
        assert!(!kept(folder.path()));
        assert_eq!(library.report()[0].rollback_kept, None);

        drop(rolled_back(folder.path()));
        let library = started(folder.path(), &wanted(OTHER));
        check_in_force(&library, OTHER);
        assert!(!kept(folder.path()));
        check_in_force(&started(folder.path(), &wanted(BAD)), BAD);
    }

    #[test]
    fn a_removed_policy_leaves_no_rollback() {
        let folder = tempfile::tempdir().unwrap();
        let mut library = rolled_back(folder.path());
        assert!(kept(folder.path()));
        let none = library.prepare(vec![]);
        library.commit(none);
        assert!(!kept(folder.path()));
    }

    #[test]
    fn bytes_that_are_not_permitted_or_damaged_are_not_restored() {
        let folder = tempfile::tempdir().unwrap();
        drop(rolled_back(folder.path()));
        let bad = component::read(&wanted(BAD).source).unwrap().digest();
        let pinned = WantedPolicy {
            permit: Permit::Pinned(bad),
            ..wanted(BAD)
        };
        check_in_force(&started(folder.path(), &pinned), BAD);
        let file = folder.path().join("p.rollback");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        check_in_force(&started(folder.path(), &wanted(BAD)), BAD);
    }

    #[test]
    fn without_a_folder_a_rollback_is_reported_to_end_with_the_process() {
        let engine = PolicyEngine::new(EngineLimits::default()).unwrap();
        let mut library = PolicyLibrary::new(engine, Arc::default());
        apply(&mut library, &wanted(BEFORE));
        apply(&mut library, &wanted(BAD));
        library.roll_back("p").unwrap();
        library.keep_rollbacks();
        assert_eq!(library.report()[0].rollback_kept, Some(false));
    }
}
