//! States of policies that a plan loads: their files are read and stay as they are. The commit that takes a policy on puts its damaged
//! file aside, counts and logs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use policy_runtime::{PolicyState, Refusal};
use tracing::{error, info, warn};

use super::file::{Saved, SavedSession};
use super::folder::ReadError;
use super::{Kept, PolicyMemory};
use crate::policy_library::chain;

/// What the file of a policy holds that is not committed.
#[derive(Debug, Default)]
pub(super) struct PlannedState {
    state: Arc<PolicyState>,
    sessions: Vec<SavedSession>,
    /// Values over a limit of this router's, by key.
    left_out: Vec<(Box<str>, Refusal)>,
    /// Whether there is a file that was read.
    is_restored: bool,
    /// Why its file was not read.
    error: Option<ReadError>,
}

impl PolicyMemory {
    /// Returns what a policy remembers, for a plan that loads it. Neither its file nor what is shown of it changes before
    /// [`PolicyMemory::of`]. Called by the one thread that loads policies.
    pub(crate) fn plan(&self, policy: &str) -> Arc<PolicyState> {
        if let Some(kept) = self.kept().get_mut(policy) {
            kept.is_planned = true;
            return Arc::clone(&kept.state);
        }
        let mut planned = self.planned();
        let planned = planned.entry(policy.to_owned());
        Arc::clone(&planned.or_insert_with(|| self.read(policy)).state)
    }

    /// Reads the file of a policy, and changes nothing.
    pub(super) fn read(&self, policy: &str) -> PlannedState {
        let saved = self.folder.as_ref().map(|folder| folder.read(policy));
        match saved {
            None | Some(Ok(None)) => PlannedState::default(),
            Some(Ok(Some(saved))) => PlannedState::restored(saved),
            Some(Err(error)) => PlannedState {
                error: Some(error),
                ..PlannedState::default()
            },
        }
    }

    /// Takes on what was read of a policy that is committed.
    pub(super) fn adopt(&self, policy: &str, planned: PlannedState) -> Kept {
        planned.log(policy);
        let is_unread = planned.error.is_some_and(|error| self.report(policy, &error));
        // Nothing but the restored values has changed the state: a policy that was loaded only was configured over copies.
        Kept {
            saved: planned.state.changes(),
            state: planned.state,
            sessions: planned.sessions,
            is_unread,
            ..Kept::default()
        }
    }

    /// Counts and logs a file that was not read, and puts a damaged one aside. Returns whether the file is to be left alone.
    fn report(&self, policy: &str, error: &ReadError) -> bool {
        if let ReadError::Read { .. } = error {
            self.failures.fetch_add(1, Ordering::Relaxed);
            error!(
                policy,
                error = chain(error),
                "failed to read the state of a policy: it begins with nothing, and nothing of it is kept"
            );
            return true;
        }
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let aside = match &self.folder {
            Some(folder) => folder.put_aside(policy),
            None => return false,
        };
        let is_unread = aside.is_err();
        let put_aside = aside.map_or_else(|error| chain(&error), |path| path.display().to_string());
        error!(
            policy,
            error = chain(error),
            put_aside,
            "the state of a policy is damaged: it begins with nothing"
        );
        is_unread
    }

    pub(super) fn planned(&self) -> MutexGuard<'_, BTreeMap<String, PlannedState>> {
        // Entries are whole values, whatever a panic elsewhere did.
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlannedState {
    fn restored(saved: Saved) -> Self {
        let state = PolicyState::default();
        let values = saved.values.into_iter();
        let left_out = values.filter_map(|(key, value)| {
            let refusal = state.set(&key, value).err()?;
            Some((key, refusal))
        });
        let left_out = left_out.collect();
        Self {
            state: Arc::new(state),
            sessions: saved.sessions,
            left_out,
            is_restored: true,
            error: None,
        }
    }

    fn log(&self, policy: &str) {
        for (key, refusal) in &self.left_out {
            let error = chain(refusal);
            warn!(
                policy,
                key = &**key,
                error,
                "failed to restore a value of a policy's state"
            );
        }
        if self.is_restored {
            info!(
                policy,
                values = self.state.keys(),
                sessions = self.sessions.len(),
                "restored the state of a policy"
            );
        }
    }
}
