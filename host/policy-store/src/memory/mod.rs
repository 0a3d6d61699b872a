//! Memory of policies by name: it outlives their versions and, with a state folder, the process.
//!
//! A policy's file is read when its name first comes up, before any of its code runs. A thread of its own (`writer.rs`)
//! writes what has changed. What cannot be read is never written over: a damaged file is put aside, and one that the
//! system refuses is left as it is, while the policy begins with nothing. Sessions wait until the workers they name are
//! known, and for some minutes for those that join later.

mod folder;
mod metrics;
mod saved_memory;
mod waiting_sessions;
mod worker_names;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use observability::error_chain;
use policy_runtime::PolicyState;
use tracing::{error, info, warn};

pub use self::folder::StateFolder;
use self::folder::{ReadError, STATE};
pub use self::metrics::MemoryCollector;
use self::saved_memory::SavedMemory;
use self::waiting_sessions::{FleetMoment, WaitingSessions};
pub use self::worker_names::WorkerNames;
pub use self::writer::{MemoryWriter, MemoryWriterHandle};

/// View of the fleet, for sessions that are saved by the names of workers.
pub trait FleetView: Send {
    /// Returns every worker with its name.
    fn worker_names(&self) -> WorkerNames;

    /// Returns the time of the fleet's clock, in microseconds.
    fn now_us(&self) -> u64;
}

/// Name and ending of the file with the overrides of routes. No policy's file has this ending.
pub const OVERRIDES: (&str, &str) = ("routes", "overrides");

/// Memory of all policies.
#[derive(Debug, Default)]
pub struct PolicyMemory {
    folder: Option<StateFolder>,
    kept: Mutex<BTreeMap<String, RememberedPolicy>>,
    /// True if the last write failed, which was logged.
    is_failing: AtomicBool,
    written: AtomicU64,
    failures: AtomicU64,
    damaged: AtomicU64,
}

#[derive(Debug, Default)]
struct RememberedPolicy {
    state: Arc<PolicyState>,
    /// Value of [`PolicyState::changes`] of the file's contents.
    saved: u64,
    /// True if its file could not be read: it is not replaced.
    is_unread: bool,
    /// True if no configuration names the policy: it is forgotten after its last write.
    is_left: bool,
    /// Sessions of its file whose workers are not known.
    sessions: WaitingSessions,
}

impl PolicyMemory {
    /// RememberedPolicy in a folder, or with the process only.
    pub fn new(folder: Option<PathBuf>) -> Self {
        let folder = folder.map(StateFolder);
        if let Some(folder) = &folder
            && let Err(error) = folder.make()
        {
            let path = folder.0.display();
            error!(%path, error = error_chain(&error), "failed to create the folder of the policies' state");
        }
        Self {
            folder,
            ..Self::default()
        }
    }

    /// Returns the state folder, if any.
    pub fn folder(&self) -> Option<&StateFolder> {
        self.folder.as_ref()
    }

    /// Counts the file of the route overrides as damaged, and renames it to an unused name, which it returns.
    ///
    /// # Errors
    /// The system's error. The file stays then.
    pub fn put_overrides_aside(&self) -> io::Result<PathBuf> {
        let (name, ending) = OVERRIDES;
        let no_folder = || io::Error::from(io::ErrorKind::NotFound);
        let folder = self.folder.as_ref().ok_or_else(no_folder)?;
        self.put_aside(folder, name, ending)
    }

    fn put_aside(&self, folder: &StateFolder, name: &str, ending: &str) -> io::Result<PathBuf> {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        folder.put_aside(name, ending)
    }

    /// Returns the memory of a policy. Only the thread that loads policies calls it.
    pub fn of(&self, policy: &str) -> Arc<PolicyState> {
        if let Some(kept) = self.kept().get_mut(policy) {
            kept.is_left = false;
            return Arc::clone(&kept.state);
        }
        let kept = self.read(policy);
        let state = Arc::clone(&kept.state);
        self.kept().insert(policy.to_owned(), kept);
        state
    }

    /// Forgets the other policies. Their files stay.
    pub fn retain(&self, names: impl Fn(&str) -> bool) {
        let is_written = self.is_written();
        self.kept().retain(|name, kept| {
            kept.is_left = !names(name);
            is_written || !kept.is_left
        });
    }

    /// Restores the sessions of another run, after the workers and the limits of sessions are known. Sessions of
    /// unknown workers wait for some minutes: the next call restores them if their worker has joined.
    pub fn settle(&self, fleet: &dyn FleetView) {
        self.settle_where(fleet, |kept| !kept.is_left);
    }

    /// Restores sessions as [`PolicyMemory::settle`] does, of those policies that `wanted` selects.
    fn settle_where(&self, fleet: &dyn FleetView, wanted: impl Fn(&RememberedPolicy) -> bool) {
        let mut kept = self.kept();
        let waits = |kept: &&mut RememberedPolicy| wanted(kept) && !kept.sessions.is_empty();
        let mut waiting = kept.values_mut().filter(waits).peekable();
        if waiting.peek().is_none() {
            return;
        }
        let workers = fleet.worker_names();
        let moment = FleetMoment {
            workers: workers.iter().map(|(id, name)| (&**name, *id)).collect(),
            now_us: fleet.now_us(),
            now_unix_ms: unix_ms(),
        };
        for kept in waiting {
            kept.sessions.place(kept.state.sessions(), &moment);
        }
    }

    fn read(&self, policy: &str) -> RememberedPolicy {
        let Some(folder) = &self.folder else {
            return RememberedPolicy::default();
        };
        match folder.read(policy) {
            Ok(None) => RememberedPolicy::default(),
            Ok(Some(saved)) => restored(policy, saved),
            Err(error @ ReadError::Read { .. }) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                error!(
                    policy,
                    error = error_chain(&error),
                    "failed to read the saved state of the policy: it starts empty, and is not saved"
                );
                RememberedPolicy {
                    is_unread: true,
                    ..RememberedPolicy::default()
                }
            }
            Err(error @ ReadError::Damaged { .. }) => {
                let aside = self.put_aside(folder, policy, STATE);
                let is_unread = aside.is_err();
                let put_aside =
                    aside.map_or_else(|error| error_chain(&error), |path| path.display().to_string());
                error!(
                    policy,
                    error = error_chain(&error),
                    put_aside,
                    "the saved state of the policy is damaged: it starts empty"
                );
                RememberedPolicy {
                    is_unread,
                    ..RememberedPolicy::default()
                }
            }
        }
    }

    /// Writes the policies that changed since their last write.
    fn write_changed(&self, fleet: &dyn FleetView) {
        let Some(folder) = &self.folder else { return };
        // Ends the wait of sessions whose workers never join.
        self.settle_where(fleet, |kept| kept.sessions.has_begun());
        let changed: Vec<(String, Arc<PolicyState>)> = {
            let kept = self.kept();
            // Until the workers are known, the file has what the memory has not.
            let is_known = |kept: &RememberedPolicy| kept.sessions.is_empty() || kept.sessions.has_begun();
            let changed = kept.iter().filter(|(_, kept)| !kept.is_saved() && is_known(kept));
            changed
                .map(|(name, kept)| (name.clone(), Arc::clone(&kept.state)))
                .collect()
        };
        if !changed.is_empty() {
            let (workers, now_us) = (fleet.worker_names(), fleet.now_us());
            for (policy, state) in changed {
                let changes = state.changes();
                // Before the policy's own sessions are read: one that is restored meanwhile is in both.
                let waiting = self.kept().get(&policy).map(|kept| kept.sessions.clone());
                let remembered = state.remembered(now_us);
                let saved = waiting
                    .unwrap_or_default()
                    .saved_with(remembered, &workers, unix_ms());
                match folder.write(&policy, &saved) {
                    Ok(()) => self.wrote(&policy, changes),
                    Err(error) => self.failed(&policy, &error),
                }
            }
        }
        // One that is named again by now is not left any more.
        self.kept().retain(|_, kept| !(kept.is_left && kept.is_saved()));
    }

    fn wrote(&self, policy: &str, changes: u64) {
        self.written.fetch_add(1, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            info!("the state of policies is saved again");
        }
        if let Some(kept) = self.kept().get_mut(policy) {
            kept.saved = changes;
        }
    }

    fn failed(&self, policy: &str, error: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            warn!(
                policy,
                error = error_chain(error),
                "failed to save the state of a policy: retrying; further failures are only counted"
            );
        }
    }

    /// Returns true if there is a folder to write to.
    fn is_written(&self) -> bool {
        self.folder.is_some()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, RememberedPolicy>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RememberedPolicy {
    fn is_saved(&self) -> bool {
        self.is_unread || self.saved == self.state.changes()
    }
}

fn restored(policy: &str, saved: SavedMemory) -> RememberedPolicy {
    let state = PolicyState::default();
    let (values, sessions) = (saved.values.len(), saved.sessions.len());
    for (key, value) in saved.values {
        // Over a limit of this router's: less is remembered than was.
        if let Err(refusal) = state.set(&key, value) {
            warn!(
                policy,
                key = &*key,
                error = error_chain(&refusal),
                "failed to restore a value of the policy's state"
            );
        }
    }
    info!(policy, values, sessions, "restored the saved state of the policy");
    RememberedPolicy {
        saved: state.changes(),
        state: Arc::new(state),
        sessions: WaitingSessions::new(saved.sessions),
        ..RememberedPolicy::default()
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
