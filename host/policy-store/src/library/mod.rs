//! Library of all policies that the configuration or the policy folder names, each with its last working versions
//! (hot swap).
//!
//! A policy that has decided once keeps deciding: a bad file never stops it. New versions are *prepared* first, which
//! changes nothing. A *commit* then activates them, so that a configuration can be refused as a whole. A problem of new
//! bytes is kept, shown and counted while the last working version serves. While the router serves, a thread of its own
//! compiles and tries new versions (`loading.rs`), and a later look finds them. Three versions are kept: earlier ones
//! decide while the circuit of the active one is open, and an operator may roll back to them
//! (host/adr/0010-policy-platform.md).

mod attempts;
mod component;
mod digest;
mod entry;
mod ignored_files;
mod listening;
mod loading;
#[cfg(test)]
mod loading_tests;
mod origin;
mod policy_commit;
mod prepared;
mod report;
mod rollbacks;
mod saved_rollback;
mod shared_hold;
#[cfg(test)]
mod tests;
mod twins;
mod version;
mod wanted_policy;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observability::error_chain;
use policy_runtime::PolicyEngine;
use routing::PolicyVersions;

use self::attempts::LoadAttempts;
pub use self::component::component_bytes;
use self::component::{ComponentBytes, builtin_bytes};
use self::digest::Digest;
pub use self::digest::MAX_COMPONENT;
pub use self::entry::RollbackError;
use self::entry::{PolicyEntry, SourceContent};
pub use self::ignored_files::IgnoredFile;
use self::ignored_files::IgnoredFiles;
pub use self::listening::ListeningReport;
pub use self::loading::Loader;
use self::loading::{LoadFinished, LoadJob, LoadOrder, Loading};
pub use self::origin::ComponentOrigin;
pub use self::policy_commit::{PolicyCommit, SwappedPolicy};
pub use self::prepared::{Outcome, Prepared, PreparedPolicy};
#[cfg(test)]
pub(crate) use self::report::{CircuitReport, LoadTimes, VersionCounts};
pub use self::report::{PipelineDecisions, PolicyReport, VersionReport, VersionState};
pub use self::saved_rollback::VersionIdentity;
pub use self::shared_hold::{HoldState, SharedHold};
pub use self::version::LoadedVersion;
pub use self::wanted_policy::{Permit, PolicyProblem, PolicySource, WantedPolicy};
use crate::memory::{FleetView, PolicyMemory, StateFolder};

/// Pause before the next look at a half-written file.
const RETRY: Duration = Duration::from_millis(100);

/// The library. Owned by the one thread that reloads. A start compiles on its thread; after
/// [`PolicyLibrary::load_behind`] nothing does.
#[derive(Debug)]
pub struct PolicyLibrary {
    engine: PolicyEngine,
    /// Loader of components: the engine, except in tests.
    loader: Arc<dyn Loader>,
    /// Background loader, after the start.
    loading: Option<Loading>,
    entries: BTreeMap<String, PolicyEntry>,
    attempts: LoadAttempts,
    /// Memory of policies by name: it outlives their versions.
    memory: Arc<PolicyMemory>,
    ignored: IgnoredFiles,
    /// Set if the bytes of all versions are kept.
    keeps_bytes: bool,
}

/// State of a policy and of its twin before a rollback or a resumption.
#[derive(Debug)]
pub struct RollbackUndo(Vec<PolicyEntry>);

impl PolicyLibrary {
    /// Returns an empty library.
    #[must_use]
    pub fn new(engine: PolicyEngine, memory: Arc<PolicyMemory>) -> Self {
        Self {
            loader: Arc::new(engine.clone()),
            engine,
            loading: None,
            entries: BTreeMap::new(),
            attempts: LoadAttempts::default(),
            memory,
            ignored: IgnoredFiles::default(),
            keeps_bytes: false,
        }
    }

    /// Starts a thread that loads policies from now on. It calls `notify` after each; the next
    /// [`PolicyLibrary::begin_look`] finds the result.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn load_behind(&mut self, notify: impl Fn() + Send + 'static) -> io::Result<()> {
        self.loading = Some(Loading::start(Arc::clone(&self.loader), notify)?);
        Ok(())
    }

    /// Replaces the engine as the loader of policies, for tests.
    pub fn load_with(&mut self, loader: Arc<dyn Loader>) {
        self.loader = loader;
    }

    /// Takes the loaded policies since the last look, and forgets attempts that are unused or due again.
    pub fn begin_look(&mut self) {
        self.begin_look_at(Instant::now());
    }

    fn begin_look_at(&mut self, now: Instant) {
        self.attempts.sweep(now);
        self.take_finished(now);
    }

    /// Forgets the failures of compiler processes: the next [`PolicyLibrary::prepare`] starts them again.
    pub fn retry_compilers(&mut self) {
        self.take_finished(Instant::now());
        self.attempts.forget_compilers();
    }

    fn take_finished(&mut self, now: Instant) {
        let loading = self.loading.as_mut();
        let finished = loading.map(Loading::take_finished).unwrap_or_default();
        for finished in finished {
            self.finish(finished, now);
        }
    }

    /// Loads the new and changed policies, or starts to load them in the background. Active versions stay active.
    pub fn prepare(&mut self, wanted: Vec<WantedPolicy>) -> Prepared {
        let prepared = wanted.into_iter().map(|wanted| {
            let entry = self.entries.get(&wanted.name);
            let accepted = entry.is_some_and(|entry| entry.accepts(&wanted));
            let (outcome, found) = self.prepare_one(&wanted);
            PreparedPolicy {
                wanted,
                outcome,
                found,
                accepted,
            }
        });
        Prepared {
            policies: prepared.collect(),
        }
    }

    /// Prepares policies at start: waits until no file seems half-written, since there is no earlier version.
    pub fn prepare_settled(&mut self, wanted: impl Fn() -> Vec<WantedPolicy>) -> Prepared {
        loop {
            let prepared = self.prepare(wanted());
            if !prepared.is_unsettled() {
                return prepared;
            }
            std::thread::sleep(RETRY);
        }
    }

    fn prepare_one(&mut self, wanted: &WantedPolicy) -> (Outcome, Option<SourceContent>) {
        let seen = component::look(&wanted.source);
        let found = self
            .entries
            .get(&wanted.name)
            .and_then(|entry| entry.found.as_ref());
        if let Some(found) = found
            && Some(&found.seen) == seen.as_ref()
            && found.source == wanted.source
            && let Some(outcome) = self.known(wanted, &found.digest)
        {
            return (outcome, Some(found.clone()));
        }
        let loading = self.loading.as_ref();
        if loading.is_some_and(|loading| !loading.has_room_for(&wanted.name)) {
            return (Outcome::Loading, None);
        }
        let component = match component::read(&wanted.source) {
            Ok(component) => component,
            Err(problem) => return (Outcome::Failed(Arc::new(problem)), None),
        };
        let (digest, is_settling) = (component.digest(), component.settling);
        let outcome = match self.known(wanted, &digest) {
            Some(outcome) => outcome,
            None => self.attempt(wanted, component, digest),
        };
        if is_settling && matches!(outcome, Outcome::Failed(_)) {
            // The file may be half-written, so its faults are not yet news.
            self.attempts.forget(&wanted.name);
            return (Outcome::Unsettled, None);
        }
        // A file that was written a moment ago may change again without a sign of it.
        let seen = seen.filter(|_| !is_settling);
        let source = wanted.source.clone();
        let found = seen.map(|seen| SourceContent { source, seen, digest });
        (outcome, found)
    }

    /// Returns the outcome for bytes of this hash, if it is known without loading them.
    fn known(&self, wanted: &WantedPolicy, digest: &Digest) -> Option<Outcome> {
        let settings = &wanted.settings;
        if let Err(refused) = wanted.permit.check(digest) {
            return Some(Outcome::Failed(Arc::new(refused)));
        }
        let entry = self.entries.get(&wanted.name);
        if self.holds(&wanted.name, digest, settings) {
            let has_any = entry.is_some_and(|entry| entry.has_any(&wanted.permit));
            return Some(if has_any {
                Outcome::HeldBack
            } else {
                Outcome::Failed(Arc::new(PolicyProblem::HeldBack))
            });
        }
        if let Some(entry) = entry
            && let Some(kept) = entry.kept(digest, settings)
        {
            let in_force = entry
                .active()
                .is_some_and(|active| active.is_of(digest, settings));
            let version = kept.under(wanted.circuit);
            if !version.does(wanted) {
                return Some(Outcome::Failed(Arc::new(PolicyProblem::NotAScorer)));
            }
            return Some(if in_force && version.spec == kept.spec {
                Outcome::Active
            } else {
                Outcome::Fresh(Box::new(version))
            });
        }
        if let Some(outcome) = self.attempts.outcome(wanted, digest) {
            return Some(outcome);
        }
        let loading = self.loading.as_ref()?;
        let is_ordered = loading.is_ordered(&wanted.name, digest, settings);
        is_ordered.then_some(Outcome::Loading)
    }

    fn attempt(&mut self, wanted: &WantedPolicy, component: ComponentBytes, digest: Digest) -> Outcome {
        let job = LoadJob {
            order: LoadOrder {
                policy: wanted.name.clone(),
                digest,
                settings: wanted.settings.clone(),
            },
            bytes: Arc::new(component.bytes),
            state: self.memory.of(&wanted.name),
        };
        if let Some(loading) = &mut self.loading {
            loading.order(job);
            return Outcome::Loading;
        }
        let finished = loading::run(&*self.loader, job);
        self.finish(finished, Instant::now());
        let outcome = self.attempts.outcome(wanted, &digest);
        outcome.unwrap_or(Outcome::Unsettled)
    }

    /// Keeps the result of an attempt. Its bytes are kept only if a rollback to it can be saved.
    fn finish(&mut self, mut finished: LoadFinished, now: Instant) {
        if finished.result.is_err() || !(self.keeps_bytes || self.memory.folder().is_some()) {
            finished.bytes = None;
        }
        self.attempts.add(finished, now);
    }

    /// Activates the prepared policies, and forgets all others.
    pub fn commit(&mut self, prepared: Prepared) -> PolicyCommit {
        let mut done = PolicyCommit::default();
        let mut entries = std::mem::take(&mut self.entries);
        for policy in prepared.policies {
            let name = policy.wanted.name.clone();
            let entry = self.commit_one(entries.remove(&name), policy, &mut done);
            self.entries.insert(name, entry);
        }
        self.forget_rollbacks(&entries);
        self.keep_rollbacks();
        if self.loading.is_none() {
            // No reload waits for them.
            let entries = &self.entries;
            self.attempts.retain(|policy| entries.contains_key(policy));
        }
        let (entries, attempts, loading) = (&self.entries, &self.attempts, self.loading.as_ref());
        // A configuration may wait for policies that the active one does not have.
        let is_awaited =
            |name: &str| attempts.has(name) || loading.is_some_and(|loading| loading.has_order_of(name));
        self.memory
            .retain(|name| entries.contains_key(name) || is_awaited(name));
        for (name, entry) in entries {
            self.memory.of(name).sessions().limit_to(entry.wanted.sessions);
        }
        done
    }

    /// Assigns the sessions of another run to the workers of this fleet.
    pub fn settle_sessions(&self, fleet: &dyn FleetView) {
        self.memory.settle(fleet);
    }

    fn commit_one(
        &mut self,
        known: Option<PolicyEntry>,
        policy: PreparedPolicy,
        done: &mut PolicyCommit,
    ) -> PolicyEntry {
        let PreparedPolicy {
            wanted,
            outcome,
            found,
            accepted,
        } = policy;
        let mut entry = known.unwrap_or_else(|| PolicyEntry::new(wanted.clone()));
        entry.is_loading = matches!(outcome, Outcome::Loading);
        match outcome {
            Outcome::Active => {
                entry.release();
                entry.problem = None;
            }
            Outcome::HeldBack => entry.problem = None,
            // Another circuit is no other version.
            Outcome::Fresh(version) if entry.is_active(&version) => {
                entry.replace_active(*version);
                entry.problem = None;
            }
            Outcome::Fresh(version) => {
                self.attempts
                    .forget_one(&wanted.name, &version.digest, &version.settings);
                done.swapped.push(SwappedPolicy {
                    policy: wanted.name.clone(),
                    version: Arc::clone(&version.id),
                    decided_256_in: version.policy.report().decided_256_in,
                });
                entry.activate(*version);
                entry.problem = None;
            }
            // The active version stays.
            Outcome::Unsettled | Outcome::Loading => {}
            Outcome::Failed(problem) => {
                if !accepted {
                    // The entry has other settings, which were not accepted with these bytes.
                    entry.clear();
                }
                let text = error_chain(&*problem);
                if entry.problem.as_ref() != Some(&text) {
                    done.failed.push((wanted.name.clone(), problem));
                }
                entry.problem = Some(text);
            }
        }
        // Rolled-back versions stay so under any list: they decide nothing.
        entry
            .chain
            .retain(|version| !wanted.permit.revokes(&version.digest));
        entry.found = found;
        entry.wanted = wanted;
        entry
    }

    /// Returns the versions of a policy for routes, the fresh one of `prepared` first. Returns none while no version
    /// has worked.
    #[must_use]
    pub fn versions(&self, name: &str, prepared: Option<&Prepared>) -> Option<Arc<PolicyVersions>> {
        let fresh = prepared.and_then(|prepared| prepared.fresh(name));
        let entry = self.entries.get(name);
        let wanted = prepared.and_then(|prepared| prepared.wanted(name));
        // A version that left the list does not decide under the new list, not even in place of a newer one.
        let permit = wanted
            .or(entry.map(|entry| &entry.wanted))
            .map(|wanted| &wanted.permit);
        let mut next = PolicyEntry::after(entry, fresh)
            .filter(|version| !permit.is_some_and(|permit| permit.revokes(&version.digest)));
        let in_force = next.next()?.link();
        Some(Arc::new(PolicyVersions::new(
            in_force,
            next.map(LoadedVersion::link),
        )))
    }

    /// Activates the version before, and holds the active one back until other bytes come or [`PolicyLibrary::resume`].
    /// The policy's twin drops the held version.
    ///
    /// # Errors
    /// [`RollbackError`]; nothing has changed then.
    pub fn roll_back(&mut self, name: &str) -> Result<RollbackUndo, RollbackError> {
        let entry = self.entry(name)?;
        let before = entry.clone();
        entry.roll_back()?;
        let twin = self.hold_in_twin(name);
        Ok(RollbackUndo(twin.into_iter().chain([before]).collect()))
    }

    /// Reverts a rollback or a resumption.
    pub fn undo(&mut self, RollbackUndo(entries): RollbackUndo) {
        let named = entries
            .into_iter()
            .map(|entry| (entry.wanted.name.clone(), entry));
        self.entries.extend(named);
    }

    /// Releases the rollbacks of a policy; the next [`PolicyLibrary::prepare`] reads its file again. Its circuits stay
    /// as they are until [`PolicyLibrary::close_circuits`].
    ///
    /// # Errors
    /// [`RollbackError::NoSuchPolicy`].
    pub fn resume(&mut self, name: &str) -> Result<RollbackUndo, RollbackError> {
        let entry = self.entry(name)?;
        let before = RollbackUndo(vec![entry.clone()]);
        entry.resume();
        self.attempts.forget(name);
        Ok(before)
    }

    /// Returns true while a new version of the policy is compiled.
    pub fn is_loading(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.is_loading)
    }

    /// Closes the circuits of all versions of a policy.
    pub fn close_circuits(&self, name: &str) {
        let versions = self.entries.get(name).into_iter().flat_map(|entry| &entry.chain);
        versions.for_each(|version| version.circuit.close());
    }

    fn entry(&mut self, name: &str) -> Result<&mut PolicyEntry, RollbackError> {
        let entry = self.entries.get_mut(name);
        entry.ok_or_else(|| RollbackError::NoSuchPolicy(name.to_owned()))
    }

    /// Returns the policies whose active version's circuit opened since the last call, with the number of openings.
    pub fn new_rollbacks(&mut self) -> Vec<(String, u64)> {
        let counted = self
            .entries
            .iter_mut()
            .map(|(name, entry)| (name.clone(), entry.new_rollbacks()));
        counted.filter(|(_, rollbacks)| *rollbacks > 0).collect()
    }

    /// Drops the warm instances of kept versions that decide nothing.
    pub fn release_spare_instances(&self) {
        self.entries
            .values()
            .for_each(PolicyEntry::release_spare_instances);
    }

    /// Looks for files of the policy folder that are not loaded, and logs each once.
    pub fn look_for_ignored_files(&mut self, folder: Option<&Path>, takes_file: impl Fn(&str) -> bool) {
        self.ignored.look(folder, takes_file);
    }

    /// Returns the files of the policy folder that are not loaded.
    pub fn ignored_files(&self) -> Vec<IgnoredFile> {
        self.ignored.report()
    }

    /// Returns the engine of its policies.
    pub fn engine(&self) -> &PolicyEngine {
        &self.engine
    }

    /// Returns the state folder, if any.
    pub fn folder(&self) -> Option<&StateFolder> {
        self.memory.folder()
    }

    /// Returns a report on each policy.
    #[must_use]
    pub fn report(&self) -> Vec<PolicyReport> {
        self.entries.values().map(PolicyReport::of).collect()
    }
}
