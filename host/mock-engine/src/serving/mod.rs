//! The engine's HTTP side: what a client sees. Knows the scheduler only through the core's commands.

mod ask;
mod body;
mod embeddings;
mod generate;
mod listener;
mod metrics;
mod refusal;
mod routes;
mod shapes;
mod tokenize;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::MockConfig;
use crate::core_loop::Command;
use crate::faults::FaultScript;
use crate::publisher::Publisher;
use crate::sequence::Submission;
use crate::stats::MockStats;

pub(crate) use listener::{Gate, Listening};

/// What every request may consult.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: MockConfig,
    pub(crate) faults: Arc<FaultScript>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) stats: watch::Receiver<MockStats>,
    /// Makes request ids.
    pub(crate) requests: AtomicU64,
}

impl Context {
    /// All counters and levels.
    pub(crate) fn stats(&self) -> MockStats {
        MockStats {
            batches: self.publisher.batches(),
            faulted: self.faults.faulted(),
            ..*self.stats.borrow()
        }
    }

    /// Hands a request to the scheduler; false when it takes no more.
    pub(crate) async fn submit(&self, submission: Submission) -> bool {
        let (accepted, answer) = oneshot::channel();
        let command = Command::Submit(submission, accepted);
        self.commands.send(command).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Forgets the prefix cache; false while anything runs.
    pub(crate) async fn reset_prefix_cache(&self) -> bool {
        let (done, answer) = oneshot::channel();
        let command = Command::ResetPrefixCache(done);
        self.commands.send(command).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Sixteen hex digits, different for every request.
    fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!(
            "{:016x}",
            xxh3_64_with_seed(&number.to_le_bytes(), self.config.seed)
        )
    }
}

/// Unix seconds.
fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
