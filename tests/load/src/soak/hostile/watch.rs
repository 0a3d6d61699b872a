//! Watchdog: requests `/health` over a new connection each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::setup::Router;
use crate::soak::client;

const QUERY_EVERY: Duration = Duration::from_millis(250);
/// Timeout of a typical load balancer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
    queries: JoinSet<()>,
}

impl Watch {
    pub(super) fn start(router: &Router) -> Self {
        let (is_over, counts) = (Arc::<AtomicBool>::default(), Arc::<[AtomicU64; 2]>::default());
        let (over, counting, target) = (Arc::clone(&is_over), Arc::clone(&counts), router.target);
        let mut queries = JoinSet::new();
        queries.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                counting[0].fetch_add(1, Ordering::Relaxed);
                if !matches!(timeout(PATIENCE, client::get(target, "/health")).await, Ok(Ok(_))) {
                    counting[1].fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(QUERY_EVERY).await;
            }
        });
        Self {
            is_over,
            counts,
            queries,
        }
    }

    /// Returns the number of requests and of missing answers.
    pub(super) async fn end(&mut self) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        while self.queries.join_next().await.is_some() {}
        let [sent, unanswered] = [0, 1].map(|at| self.counts[at].load(Ordering::Relaxed));
        (sent, unanswered)
    }
}
