//! History of configuration texts, shared by the reload thread and the admin pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admin_views::ConfigHistory;

use super::ProblemReport;

/// History of configuration texts. A clone is another handle to the same history.
#[derive(Debug, Clone, Default)]
pub struct ConfigTexts(Arc<Mutex<ConfigHistory<ProblemReport>>>);

impl ConfigTexts {
    /// Locks the history.
    pub fn lock(&self) -> MutexGuard<'_, ConfigHistory<ProblemReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
