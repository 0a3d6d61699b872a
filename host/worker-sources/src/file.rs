//! File in Prometheus' `file_sd` shape, watched for changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use local_files::{FolderWatch, WatchError};
use observability::error_chain;
use tokio::sync::Notify;
use tracing::warn;
use worker_discovery::{Decoded, target_groups};

use crate::client::read_file;
use crate::error::SourceError;
use crate::spec::SourceSpec;

/// Reads the file.
pub(crate) async fn query(path: &Path, spec: &SourceSpec) -> Result<Decoded, SourceError> {
    let bytes = read_file(path.to_owned(), "the target groups", spec.max_bytes as u64).await?;
    Ok(target_groups(&bytes, &spec.defaults)?)
}

/// Watch of the file's folders.
pub(crate) struct FileWatch {
    path: PathBuf,
    watch: FolderWatch,
}

impl FileWatch {
    /// Watches the folders that the path has now: a link in it may have moved.
    pub(crate) async fn renew(mut self) -> Option<Self> {
        let renewed = tokio::task::spawn_blocking(move || {
            // A folder that cannot be watched is tried again before the next query.
            let _ = self.watch.set([&*self.path]);
            self
        });
        renewed.await.ok()
    }
}

/// Watches the folders of the file, if the system can. Each change notifies `changed`.
pub(crate) async fn watch(path: PathBuf, changed: Arc<Notify>) -> Option<FileWatch> {
    let watched = tokio::task::spawn_blocking(move || {
        let mut watch = FolderWatch::start(move || changed.notify_one())?;
        // Such a folder is tried again too.
        let failed = watch.set([&*path]).err();
        Ok((FileWatch { path, watch }, failed))
    });
    let watched: Result<_, WatchError> = watched.await.ok()?;
    let log = |error: &WatchError| {
        let error = error_chain(error);
        warn!(
            error,
            "changes of a source of workers are noticed only every `every`"
        );
    };
    let (watch, failed) = watched.inspect_err(log).ok()?;
    failed.as_ref().inspect(|error| log(error));
    Some(watch)
}
