//! State of one pool or route in the active snapshot, which waiting requests look up.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// State of one pool or route in the active snapshot, kept over all snapshots. It is read before and after a wait,
/// and a pool's also where no worker is left.
#[derive(Debug)]
pub(crate) struct CurrentState<T>(Mutex<Weak<T>>);

impl<T> CurrentState<T> {
    /// Returns the state. `None` before the first snapshot is active.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    pub(crate) fn set(&self, state: &Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(state);
    }
}

impl<T> Default for CurrentState<T> {
    fn default() -> Self {
        Self(Mutex::new(Weak::new()))
    }
}
