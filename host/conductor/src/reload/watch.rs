//! Watch of the folders with the configuration and the policies.

use std::path::PathBuf;
use std::time::Duration;

use local_files::FolderWatch;
use observability::error_chain;
use tracing::warn;

/// Interval of rounds without a notification: replaced folders and network file systems send none.
pub(super) const POLL_EVERY: Duration = Duration::from_secs(2);

/// Watched folders, if the system supports it. Each error is logged once.
pub(super) struct FileWatch {
    folders: Option<FolderWatch>,
    reported_error: Option<String>,
}

impl FileWatch {
    /// Starts the watch of no folder. `wake` is called after each change.
    pub(super) fn start(wake: impl Fn() + Send + 'static) -> Self {
        let mut watch = Self {
            folders: None,
            reported_error: None,
        };
        match FolderWatch::start(wake) {
            Ok(folders) => watch.folders = Some(folders),
            Err(error) => watch.report(Some(error_chain(&error))),
        }
        watch
    }

    /// Watches these folders.
    pub(super) fn set(&mut self, paths: &[PathBuf]) {
        if let Some(folders) = &mut self.folders {
            let failed = folders.set(paths.iter().map(PathBuf::as_path)).err();
            self.report(failed.map(|error| error_chain(&error)));
        }
    }

    fn report(&mut self, problem: Option<String>) {
        if problem == self.reported_error {
            return;
        }
        if let Some(error) = &problem {
            warn!(
                error,
                "failed to watch files: changes are noticed only every {POLL_EVERY:?}"
            );
        }
        self.reported_error = problem;
    }
}
