//! Model-list query: fetches a worker's list of models.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use inference_api::{ModelNames, ModelNamesError, model_names};
use thiserror::Error;
use tracing::{debug, info};
use worker_client::{Authorization, PageError, ReadError, SendError, SendTimeouts};

use super::metrics::RefreshResult;
use super::spec::ModelListSpec;
use crate::fleet::pool::{Member, WorkerPool};
use crate::fleet::worker::WorkerHandle;

/// Longest list that is read, in bytes; vLLM's has about 450 for each name.
const LONGEST_LIST: usize = 4 << 20;
/// Longest reason that is kept of a failure, in bytes.
const LONGEST_REASON: usize = 512;

/// Reason why a worker gave no list.
#[derive(Debug, Error)]
enum FetchError {
    #[error("request the models")]
    Forward(#[source] SendError),
    #[error("get the models within {0:?}")]
    Timeout(Duration),
    #[error("read the list of models")]
    Body(#[source] ReadError<hyper::Error>),
    #[error("get the models: the worker answered {0}")]
    Status(StatusCode),
    #[error("use the list of models")]
    Names(#[source] ModelNamesError),
}

impl FetchError {
    fn result(&self) -> RefreshResult {
        match self {
            Self::Status(
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED,
            ) => RefreshResult::NoPage,
            Self::Names(_) => RefreshResult::Invalid,
            _ => RefreshResult::Failed,
        }
    }

    /// Returns the error and its sources in one line, bounded.
    fn reason(&self) -> Arc<str> {
        let mut text = format!("failed to {self}");
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text.truncate(text.floor_char_boundary(LONGEST_REASON));
        text.into()
    }
}

/// Queries once at the URL that these members of the pool share, and stores each member's list. Returns `true` if an
/// early retry is worthwhile.
pub(crate) async fn refresh(pool: &WorkerPool, members: &[usize], spec: &ModelListSpec) -> bool {
    let members: Vec<&Member> = members.iter().filter_map(|at| pool.members.get(*at)).collect();
    let Some(first) = members.first() else {
        return false;
    };
    let queries: Vec<u64> = members.iter().map(|member| member.link.models.begin()).collect();
    let fetched = fetch(&first.link, spec, &pool.authorization);
    let fetched = tokio::time::timeout(spec.timeout, fetched).await;
    let fetched = fetched.unwrap_or(Err(FetchError::Timeout(spec.timeout)));
    let members = members.iter().zip(queries);
    match fetched {
        Ok(names) => {
            let names = Arc::new(names);
            let learned = members.map(|(member, query)| (member, learn(member, query, &names)));
            let learned: Vec<_> = learned.collect();
            pool.renew_catalog();
            // Counted once requests are placed by it.
            for (member, result) in learned {
                member.link.metrics.catalog.refreshed(result);
            }
            true
        }
        Err(error) => {
            let (result, reason) = (error.result(), error.reason());
            for (member, query) in members {
                member.link.models.failed(query, &reason);
                member.link.metrics.catalog.refreshed(result);
            }
            let worker = &*first.worker.spec().name;
            debug!(worker, reason = &*reason, "a worker gave no list of models");
            result != RefreshResult::NoPage
        }
    }
}

fn learn(member: &Member, query: u64, names: &Arc<ModelNames>) -> RefreshResult {
    let link = &member.link;
    if !link.models.learn(query, names, link.now_ms()) {
        return RefreshResult::Unchanged;
    }
    let adapters = names.values().filter(|parent| parent.is_some()).count();
    info!(
        worker = &*member.worker.spec().name,
        models = names.len() - adapters,
        adapters,
        "learned the models of a worker"
    );
    RefreshResult::Changed
}

async fn fetch(
    link: &WorkerHandle,
    spec: &ModelListSpec,
    authorization: &Authorization,
) -> Result<ModelNames, FetchError> {
    let limits = SendTimeouts {
        connect: spec.timeout,
        first_byte: spec.timeout,
    };
    let fetched = link
        .upstream
        .page(&spec.path, &HeaderMap::new(), authorization, limits, LONGEST_LIST)
        .await;
    let (status, list) = fetched.map_err(|error| match error {
        PageError::Send(error) => FetchError::Forward(error),
        PageError::Read(error) => FetchError::Body(error),
    })?;
    if !status.is_success() {
        return Err(FetchError::Status(status));
    }
    model_names(&list).map_err(FetchError::Names)
}
