//! Polling: queries at intervals, of every kind of source but a watch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use worker_discovery::Decoded;

use crate::client::SourceClient;
use crate::error::SourceError;
use crate::kubernetes::Follower;
use crate::spec::{SourceKind, SourceSpec};
use crate::state::SourceState;
use crate::{dns, file, http_sd};

/// Pause after a notification: a save is several events.
const QUIET: Duration = Duration::from_millis(50);

/// Queries a source once, within its limits.
///
/// # Errors
/// [`SourceError`].
pub async fn query_once(spec: &SourceSpec) -> Result<Decoded, SourceError> {
    if let SourceKind::Kubernetes(source) = &spec.kind {
        return Follower::new(source, spec).list_once().await;
    }
    query(spec, client_of(spec).as_ref()).await
}

/// Follows a source until the task is aborted.
pub(crate) async fn follow(spec: SourceSpec, state: Arc<SourceState>) {
    if let SourceKind::Kubernetes(source) = &spec.kind {
        return Follower::new(source, &spec).follow(&state).await;
    }
    let changed = Arc::new(Notify::new());
    let mut watch = match &spec.kind {
        SourceKind::FileSd(path) => file::watch(path.clone(), Arc::clone(&changed)).await,
        _ => None,
    };
    let client = client_of(&spec);
    let (mut last, mut due_at) = (None, Instant::now());
    loop {
        // Notifications do not put off the poll: a worker is removed only after repeated answers without it.
        let is_due = due_at <= Instant::now();
        let answer = query(&spec, client.as_ref()).await;
        let good = answer.as_ref().ok().cloned();
        // Several notifications of one save are one answer.
        if is_due || good != last {
            state.record(answer);
        }
        last = good;
        if is_due {
            due_at = Instant::now() + spec.every;
        }
        tokio::select! {
            () = sleep_until(due_at) => {}
            () = changed.notified() => sleep(QUIET).await,
        }
        // Before the query, so that no change is between them.
        if let Some(stale) = watch.take() {
            watch = stale.renew().await;
        }
    }
}

fn client_of(spec: &SourceSpec) -> Option<SourceClient> {
    match &spec.kind {
        SourceKind::HttpSd { server, .. } => Some(SourceClient::new(server, spec.timeout, spec.max_bytes)),
        _ => None,
    }
}

async fn query(spec: &SourceSpec, client: Option<&SourceClient>) -> Result<Decoded, SourceError> {
    let answer = async {
        match (&spec.kind, client) {
            (SourceKind::Dns { name, port, server }, _) => dns::addresses(name, *port, *server, spec).await,
            (SourceKind::Srv { name, server }, _) => dns::services(name, *server, spec).await,
            (SourceKind::HttpSd { path, .. }, Some(client)) => http_sd::query(client, path, spec).await,
            (SourceKind::FileSd(path), _) => file::query(path, spec).await,
            // Neither is polled: the first has a client, the second a watch.
            (SourceKind::HttpSd { .. } | SourceKind::Kubernetes(_), _) => Ok(Decoded::default()),
        }
    };
    let answer = timeout(spec.timeout, answer).await;
    answer.unwrap_or(Err(SourceError::Timeout(spec.timeout)))
}
