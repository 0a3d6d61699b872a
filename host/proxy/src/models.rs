//! `/v1/models`: what all workers serve and are declared to serve, asked at once and remembered for a moment. What was told to
//! a client's credentials for the workers is told to nobody else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use inference_api::{list_models, merge_models};
use routing::{Generation, WorkerId};
use tokio::time::timeout;
use tracing::debug;

use crate::forward::{ForwardLimits, Outgoing, forward};
use crate::intake;
use crate::link::WorkerLink;
use crate::snapshot::{RequestLimits, Snapshot};

/// How long an answer is given again.
const FRESH: Duration = Duration::from_secs(5);
/// How long a worker may take to tell its models.
const PATIENCE: Duration = Duration::from_secs(2);
/// Workers asked at once.
const AT_ONCE: usize = 32;
/// Longest list of one worker, in bytes.
const LONGEST_LIST: usize = 4 << 20;

const MODELS: PathAndQuery = PathAndQuery::from_static("/v1/models");

/// The merged list, as last asked for without credentials.
#[derive(Debug, Default)]
pub(crate) struct ModelList(Mutex<Option<Remembered>>);

#[derive(Debug)]
struct Remembered {
    list: Bytes,
    generation: Generation,
    until: Instant,
}

impl ModelList {
    /// The merged list of all workers that tell theirs in time; none when no worker does.
    pub(crate) async fn get(&self, snapshot: &Snapshot, client: &HeaderMap) -> Option<Bytes> {
        if client.contains_key(AUTHORIZATION) {
            return ask_all(snapshot, client).await;
        }
        if let Some(list) = self.remembered(snapshot.generation) {
            return Some(list);
        }
        let list = ask_all(snapshot, client).await?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Remembered {
            list: list.clone(),
            generation: snapshot.generation,
            until: Instant::now() + FRESH,
        });
        Some(list)
    }

    fn remembered(&self, generation: Generation) -> Option<Bytes> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = remembered.as_ref()?;
        let is_fresh = remembered.generation == generation && Instant::now() < remembered.until;
        is_fresh.then(|| remembered.list.clone())
    }
}

async fn ask_all(snapshot: &Snapshot, client: &HeaderMap) -> Option<Bytes> {
    let mut links: Vec<(WorkerId, Arc<WorkerLink>)> = Vec::new();
    for member in snapshot.members() {
        if links.iter().all(|(id, _)| *id != member.worker.id()) {
            links.push((member.worker.id(), Arc::clone(&member.link)));
        }
    }
    let headers: HeaderMap = client
        .get(AUTHORIZATION)
        .map(|value| (AUTHORIZATION, value.clone()))
        .into_iter()
        .collect();
    let ask = |(id, link): (WorkerId, Arc<WorkerLink>)| {
        let (headers, limits) = (headers.clone(), snapshot.limits);
        async move {
            let list = timeout(PATIENCE, ask_one(&link, &headers, &limits)).await;
            if !matches!(list, Ok(Some(_))) {
                debug!(worker = %id, "a worker did not tell its models");
            }
            list.ok().flatten()
        }
    };
    // In the order of the configuration, so that the list is the same from call to call.
    let lists: Vec<Bytes> = stream::iter(links)
        .map(ask)
        .buffered(AT_ONCE)
        .filter_map(|list| async { list })
        .collect()
        .await;
    let declared = declared(snapshot);
    if lists.is_empty() && declared.is_empty() {
        return None;
    }
    let declared = list_models(declared.iter().copied());
    let lists = lists.iter().map(|list| &**list);
    merge_models(lists.chain([&*declared])).ok().map(Bytes::from)
}

/// What the workers are declared to serve: there also where none of them lists it.
fn declared(snapshot: &Snapshot) -> BTreeSet<&str> {
    let of_workers = snapshot.members().flat_map(|member| &member.worker.spec().models);
    let of_pools = snapshot.pools.iter().flat_map(|pool| &pool.adapters);
    of_workers.chain(of_pools).map(|model| &**model).collect()
}

/// A worker's list, if it is one.
async fn ask_one(link: &WorkerLink, headers: &HeaderMap, limits: &RequestLimits) -> Option<Bytes> {
    let outgoing = Outgoing {
        method: &Method::GET,
        target: &MODELS,
        headers,
        rank: None,
        once: false,
        body: &Bytes::new(),
    };
    let limits = ForwardLimits {
        connect: limits.connect_timeout,
        first_byte: PATIENCE,
    };
    let answer = forward(&link.upstream, outgoing, limits).await.ok()?;
    let is_success = answer.status().is_success();
    let mut body = answer.into_body();
    let list = intake::collect(&mut body, LONGEST_LIST, PATIENCE).await.ok()?;
    link.upstream.checkin(body);
    (is_success && merge_models([&*list]).is_ok()).then_some(list)
}
