//! `/v1/models`: models that all workers serve and are declared to serve, fetched concurrently and cached for a moment.
//!
//! An answer to a client's credentials for the workers is sent to no other client.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use inference_api::{list_models, merge_models, select_models};
use routing::{Generation, Worker};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::debug;
use worker_client::{Authorization, SendTimeouts};

use crate::base::timeouts::RequestLimits;
use crate::fleet::worker::WorkerHandle;
use crate::limits::clients::KeyHash;
use crate::request::snapshot::Snapshot;

/// Time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(5);
/// Longest time a worker may take to list its models.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most workers queried concurrently.
const AT_ONCE: usize = 32;
/// Longest list of one worker, in bytes.
const LONGEST_LIST: usize = 4 << 20;

const MODELS: PathAndQuery = PathAndQuery::from_static("/v1/models");

/// Most credentials whose lists are cached.
const MOST_REMEMBERED: usize = 64;
/// Most lists that are made at once for requests with credentials. Others wait, at most for a worker's timeout.
const MADE_AT_ONCE: usize = 4;

/// The merged lists of the last query.
#[derive(Debug)]
pub(crate) struct ModelList {
    /// Cached lists by the hash of the credentials. `None`: without credentials.
    remembered: Mutex<HashMap<Option<KeyHash>, Remembered>>,
    without_credentials: Semaphore,
    with_credentials: Semaphore,
}

#[derive(Debug)]
struct Remembered {
    list: Bytes,
    generation: Generation,
    until: Instant,
}

impl Default for ModelList {
    fn default() -> Self {
        Self {
            remembered: Mutex::default(),
            without_credentials: Semaphore::new(1),
            with_credentials: Semaphore::new(MADE_AT_ONCE),
        }
    }
}

impl ModelList {
    /// Returns the merged list of all workers that answer in time. `None` when no worker does, or too many other
    /// requests are under way.
    pub(crate) async fn get(&self, snapshot: &Snapshot, client: &HeaderMap) -> Option<Bytes> {
        let credentials = client.get(AUTHORIZATION);
        let credentials = credentials.map(|value| KeyHash::of(value.as_bytes()));
        let known = || self.remembered(credentials, snapshot.generation);
        if let Some(list) = known() {
            return Some(list);
        }
        let turns = match credentials {
            None => &self.without_credentials,
            Some(_) => &self.with_credentials,
        };
        let _turn = timeout(PATIENCE, turns.acquire()).await.ok()?;
        // An earlier request may have fetched the same list.
        if let Some(list) = known() {
            return Some(list);
        }
        let list = fetch_all(snapshot, client).await?;
        self.remember(credentials, snapshot.generation, list.clone());
        Some(list)
    }

    fn remembered(&self, credentials: Option<KeyHash>, generation: Generation) -> Option<Bytes> {
        let remembered = self.lock();
        let remembered = remembered.get(&credentials)?;
        let is_fresh = remembered.generation == generation && Instant::now() < remembered.until;
        is_fresh.then(|| remembered.list.clone())
    }

    fn remember(&self, credentials: Option<KeyHash>, generation: Generation, list: Bytes) {
        let now = Instant::now();
        let mut remembered = self.lock();
        remembered.retain(|_, old| now < old.until);
        if remembered.len() >= MOST_REMEMBERED {
            let oldest = remembered.iter().min_by_key(|(_, old)| old.until);
            let oldest = oldest.map(|(credentials, _)| *credentials);
            oldest.and_then(|oldest| remembered.remove(&oldest));
        }
        let new = Remembered {
            list,
            generation,
            until: now + FRESH,
        };
        remembered.insert(credentials, new);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<KeyHash>, Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn fetch_all(snapshot: &Snapshot, client: &HeaderMap) -> Option<Bytes> {
    let mut links: Vec<(Arc<Worker>, Arc<WorkerHandle>, Authorization)> = Vec::new();
    let credentials = client.get(AUTHORIZATION);
    let credentials: HeaderMap = credentials
        .map(|value| (AUTHORIZATION, value.clone()))
        .into_iter()
        .collect();
    for pool in &snapshot.pools {
        for member in &pool.workers.members {
            let id = member.worker.id();
            if links.iter().all(|(known, ..)| known.id() != id) {
                links.push((
                    Arc::clone(&member.worker),
                    Arc::clone(&member.link),
                    pool.workers.authorization.clone(),
                ));
            }
        }
    }
    let fetch = |(worker, link, authorization): (Arc<Worker>, Arc<WorkerHandle>, Authorization)| {
        let (limits, headers) = (snapshot.limits, &credentials);
        async move {
            let list = timeout(PATIENCE, fetch_one(&link, headers, &authorization, &limits)).await;
            let Some(list) = list.ok().flatten() else {
                debug!(
                    worker = &*worker.spec().name,
                    "a worker did not report its models"
                );
                return None;
            };
            // A model that the configuration leaves out is not served, even if the worker lists it.
            let served = select_models(&list, |model| worker.serves(model));
            served.ok().map(Bytes::from)
        }
    };
    // In the order of the configuration, so that the list is the same from call to call.
    let lists: Vec<Bytes> = stream::iter(links)
        .map(fetch)
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

/// Returns the models that the workers are declared to serve, also where no worker lists them.
fn declared(snapshot: &Snapshot) -> BTreeSet<&str> {
    let of_workers = snapshot.members().flat_map(|member| &member.worker.spec().models);
    let of_pools = snapshot
        .pools
        .iter()
        .flat_map(|pool| pool.workers.catalog.adapters());
    let of_pools = of_pools.map(|adapter| &adapter.name);
    of_workers.chain(of_pools).map(|model| &**model).collect()
}

/// Fetches a worker's list. Returns `None` for any other answer.
async fn fetch_one(
    link: &WorkerHandle,
    headers: &HeaderMap,
    authorization: &Authorization,
    limits: &RequestLimits,
) -> Option<Bytes> {
    let limits = SendTimeouts {
        connect: limits.connect_timeout,
        first_byte: PATIENCE,
    };
    let fetched = link
        .upstream
        .page(&MODELS, headers, authorization, limits, LONGEST_LIST)
        .await;
    let (status, list) = fetched.ok()?;
    (status.is_success() && merge_models([&*list]).is_ok()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_remembered_for_few_credentials_and_for_none_of_another() {
        let (models, generation) = (ModelList::default(), Generation(1));
        let key = |number: usize| Some(KeyHash::of(&number.to_be_bytes()));
        models.remember(None, generation, "everybody".into());
        for number in 0..2 * MOST_REMEMBERED {
            models.remember(key(number), generation, number.to_string().into());
            assert!(models.lock().len() <= MOST_REMEMBERED);
        }
        let last = 2 * MOST_REMEMBERED - 1;
        assert_eq!(
            models.remembered(key(last), generation).unwrap(),
            last.to_string()
        );
        assert_eq!(models.remembered(key(0), generation), None);
    }
}
