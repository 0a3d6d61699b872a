//! Catalog refresh caused by a request: its model is in no list, or a worker answered that it does not serve the model.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use routing::WorkerId;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{RequestModel, ServedModel, refresh};
use crate::fleet::pool::{Member, WorkerPool};
use crate::tasks;

/// Shortest time between two queries of all members that requests cause.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait of a request for these lists.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most members queried at a time.
const AT_ONCE: usize = 32;

/// Returns the members that serve a model. A model that no list has may have been loaded a moment ago. In that case all
/// lists are fetched first, unless they just were.
pub(crate) async fn look_up(pool: &Arc<WorkerPool>, model: &str) -> Arc<ServedModel> {
    let served = pool.catalog.find(model);
    if !served.is_empty() || model.is_empty() || pool.model_list.is_none() {
        return served;
    }
    // On the heap: it is rare, and every request would carry its room.
    Box::pin(look_again(Arc::clone(pool))).await;
    pool.catalog.find(model)
}

/// Fetches all lists, unless that was just done, and waits for those that come in time.
async fn look_again(pool: Arc<WorkerPool>) {
    let came = Instant::now();
    let queried = async {
        if let Ok(_turn) = pool.catalog.query_permit.acquire().await
            && may_query(&pool, came)
        {
            query_all(Arc::clone(&pool)).await;
        }
    };
    // Only the lists that came in time count.
    let _ = timeout(PATIENCE, queried).await;
}

async fn query_all(pool: Arc<WorkerPool>) {
    let query = |members: Vec<usize>| {
        let pool = Arc::clone(&pool);
        async move {
            if let Some(spec) = &pool.model_list {
                refresh(&pool, &members, spec).await;
            }
        }
    };
    let queries = stream::iter(by_url(&pool.members)).map(query);
    let answers = queries.buffer_unordered(AT_ONCE);
    answers.for_each(|()| std::future::ready(())).await;
}

/// Returns `true` if all members are to be queried for a request that came then. A request that waited for its turn
/// uses the lists that were fetched for another one meanwhile.
fn may_query(pool: &WorkerPool, came: Instant) -> bool {
    let mut queried_at = pool
        .catalog
        .queried_at
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let may = queried_at.is_none_or(|queried_at| queried_at < came && queried_at.elapsed() >= PAUSE);
    if may {
        *queried_at = Some(Instant::now());
    }
    may
}

/// Groups the members to query by URL: those behind one URL have one list. Members with explicit `models` are left out.
fn by_url(members: &[Member]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let spec = member.worker.spec();
        if spec.models.is_empty() {
            groups.entry(&spec.url).or_default().push(at);
        }
    }
    groups.into_values().collect()
}

/// Model that a worker does not serve, according to its answer.
#[derive(Clone, Copy)]
pub(crate) struct UnservedModel<'r> {
    /// Its name in the request.
    pub(crate) model: &'r str,
    /// The workers that were known to serve it.
    pub(crate) served: &'r RequestModel,
    /// The worker that answered.
    pub(crate) worker: WorkerId,
}

/// Handles a worker's answer that it does not serve the request's model. The worker's list is fetched again in the
/// background. Where no other worker is known to serve the model, all lists are fetched, and the request waits for
/// them.
pub(crate) async fn after_not_found(
    background: &TaskTracker,
    pool: &Arc<WorkerPool>,
    unserved: UnservedModel<'_>,
    tried: &[WorkerId],
) {
    let UnservedModel {
        model,
        served,
        worker,
    } = unserved;
    let is_other = |(at, member): (usize, &Member)| {
        let id = member.worker.id();
        served.now().has(at) && id != worker && !tried.contains(&id)
    };
    if !pool.members.iter().enumerate().any(is_other) {
        if pool.model_list.is_some() {
            Box::pin(look_again(Arc::clone(pool))).await;
            served.renew(pool.catalog.find(model));
        }
        return;
    }
    let at = pool
        .members
        .iter()
        .position(|member| member.worker.id() == worker);
    let Some(at) = at.filter(|at| {
        let link = &pool.members[*at].link;
        link.models.may_query(link.now_ms())
    }) else {
        return;
    };
    let pool = Arc::clone(pool);
    tasks::spawn(background, "models", async move {
        if let Some(spec) = &pool.model_list {
            refresh(&pool, &[at], spec).await;
        }
    });
}
