//! File in Prometheus' `file_sd` shape, watched for changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use local_files::FolderWatch;
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

/// Watches the folder of the file, if the system can. Each change notifies `changed`.
pub(crate) async fn watch(path: PathBuf, changed: Arc<Notify>) -> Option<FolderWatch> {
    let watched = tokio::task::spawn_blocking(move || {
        let mut watch = FolderWatch::start(move || changed.notify_one())?;
        watch.set([&*path])?;
        Ok(watch)
    });
    let watched: Result<_, local_files::WatchError> = watched.await.ok()?;
    let log = |error: &local_files::WatchError| {
        let error = error_chain(error);
        warn!(
            error,
            "changes of a source of workers are noticed only every `every`"
        );
    };
    watched.inspect_err(log).ok()
}
