//! Twins of policies, which run as shadows: a version that is rolled back for a policy does not run in its twin either.

use policy_runtime::PolicySettings;

use super::digest::Digest;
use super::entry::PolicyEntry;
use super::version::LoadedVersion;
use super::{PolicyLibrary, PolicyProblem};
use crate::configured::{shadow_name, shadowed};

impl PolicyLibrary {
    /// Returns true if a version is rolled back for this policy, or for the policy whose twin it is.
    pub(super) fn holds(&self, name: &str, digest: &Digest, settings: &PolicySettings) -> bool {
        let mut policies = [Some(name), shadowed(name)].into_iter().flatten();
        policies.any(|policy| {
            let entry = self.entries.get(policy);
            entry.is_some_and(|entry| entry.holds(digest, settings))
        })
    }

    /// Drops the versions of a policy's twin that are rolled back for the policy. Returns the twin as it was, if it has
    /// changed.
    pub(super) fn hold_in_twin(&mut self, policy: &str) -> Option<PolicyEntry> {
        let twin = shadow_name(policy);
        let mut entry = self.entries.get(&twin)?.clone();
        let is_held = |version: &LoadedVersion| self.holds(&twin, &version.digest, &version.settings);
        let kept = entry.chain.len();
        let ends_active = entry.active().is_some_and(is_held);
        entry.chain.retain(|version| !is_held(version));
        if entry.chain.len() == kept {
            return None;
        }
        if entry.chain.is_empty() {
            // A trial shows no shadow without a version.
            entry.problem = Some(PolicyProblem::HeldBack.to_string());
        } else if ends_active {
            entry.begin();
        }
        self.entries.insert(twin, entry)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use policy_runtime::{EngineLimits, PolicyEngine};

    use super::super::{PolicyReport, WantedPolicy};
    use super::*;
    use crate::memory::PolicyMemory;

    const FIRST: &str = "round-robin";
    const SECOND: &str = "load-weighted";

    fn library(folder: Option<&Path>) -> PolicyLibrary {
        let engine = PolicyEngine::new(EngineLimits::default()).unwrap();
        let memory = PolicyMemory::new(folder.map(Path::to_owned));
        PolicyLibrary::new(engine, Arc::new(memory))
    }

    /// Returns the policy `p` with the bytes of a built-in one, and its twin if it is a shadow.
    fn wanted(builtin: &str, is_shadow: bool) -> Vec<WantedPolicy> {
        let twin = is_shadow.then(|| shadow_name("p"));
        let names = std::iter::once("p".to_owned()).chain(twin);
        names
            .map(|name| WantedPolicy::of_builtin(&name, builtin))
            .collect()
    }

    fn apply(library: &mut PolicyLibrary, wanted: Vec<WantedPolicy>) {
        let prepared = library.prepare(wanted);
        drop(library.commit(prepared));
    }

    /// Returns the reports on the policy and on its twin.
    fn both(library: &PolicyLibrary) -> [PolicyReport; 2] {
        library.report().try_into().unwrap()
    }

    /// Checks that the twin has the version of its policy.
    #[track_caller]
    fn check_same(library: &PolicyLibrary) {
        let [policy, twin] = both(library);
        assert!(policy.version.is_some());
        assert_eq!((twin.version, twin.problem), (policy.version, None));
    }

    #[test]
    fn a_rollback_takes_the_version_out_of_the_twin_until_it_is_resumed() {
        let mut library = library(None);
        apply(&mut library, wanted(FIRST, true));
        apply(&mut library, wanted(SECOND, true));
        let undo = library.roll_back("p").unwrap();
        check_same(&library);
        apply(&mut library, wanted(SECOND, true));
        check_same(&library);
        library.undo(undo);
        check_same(&library);
        library.roll_back("p").unwrap();
        let earlier = both(&library)[0].version.clone();
        library.resume("p").unwrap();
        apply(&mut library, wanted(SECOND, true));
        check_same(&library);
        assert_ne!(both(&library)[0].version, earlier);
    }

    #[test]
    fn a_twin_has_no_version_while_its_file_has_only_the_rolled_back_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut before = library(Some(folder.path()));
        apply(&mut before, wanted(FIRST, false));
        apply(&mut before, wanted(SECOND, false));
        before.roll_back("p").unwrap();
        before.keep_rollbacks();
        let mut restarted = library(Some(folder.path()));
        restarted.restore_rollbacks(&wanted(SECOND, true));
        for library in [&mut before, &mut restarted] {
            apply(library, wanted(SECOND, true));
            let [policy, twin] = both(library);
            assert!(policy.version.is_some());
            assert_eq!(twin.version, None);
            assert!(twin.problem.is_some());
            assert!(library.versions(&shadow_name("p"), None).is_none());
            apply(library, wanted(FIRST, true));
            check_same(library);
        }
    }
}
