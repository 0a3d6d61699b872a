//! The engine's HTTP side: what a client sees. Knows the scheduler only through the core's commands.

mod adapters;
mod ask;
mod audio;
mod body;
mod form;
mod generate;
mod kept;
mod listener;
mod messages;
mod metrics;
mod paths;
mod pooling;
mod realtime;
mod recorder;
mod refusal;
mod routes;
mod shapes;
mod stream;
mod token_prompt;
mod tokenize;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::MockConfig;
use crate::core_loop::Command;
use crate::faults::FaultScript;
use crate::power::Power;
use crate::publisher::Publisher;
use crate::sequence::{Output, Submission};
use crate::stats::MockStats;

pub(crate) use adapters::LoadedAdapters;
pub(crate) use body::{Answer, empty_reply, json_reply};
use kept::KeptResponses;
pub(crate) use listener::{Gate, Listening, Site};
pub use recorder::Recorded;
pub(crate) use recorder::Recorder;

/// What every request may consult.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: MockConfig,
    pub(crate) adapters: LoadedAdapters,
    pub(crate) faults: Arc<FaultScript>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) stats: watch::Receiver<MockStats>,
    /// Makes request ids.
    pub(crate) requests: AtomicU64,
    pub(crate) recorder: Recorder,
    pub(crate) kept: Arc<KeptResponses>,
    pub(crate) power: Arc<Power>,
    /// For what outlives a request.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// All counters and levels.
    pub(crate) fn stats(&self) -> MockStats {
        let side = self.power.side.as_ref();
        let [prefill_legs, decode_legs, role_violations] = side.map(|side| side.counts()).unwrap_or_default();
        MockStats {
            batches: self.publisher.batches(),
            faulted: self.faults.faulted(),
            prefill_legs,
            decode_legs,
            role_violations,
            ..*self.stats.borrow()
        }
    }

    /// Hands the requests of one answer to the scheduler; false when it takes no more.
    pub(crate) async fn submit(&self, submissions: Vec<Submission>) -> bool {
        let (accepted, answer) = oneshot::channel();
        let command = Command::Submit(submissions, accepted);
        self.commands.send(command).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Where the tokens of one answer arrive, with room for so many.
    fn tokens(&self, room: usize) -> (mpsc::Sender<Output>, Tokens) {
        let (output, receiver) = mpsc::channel(room);
        let tokens = Tokens {
            receiver,
            _leaving: Leaving(self.commands.clone()),
        };
        (output, tokens)
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

/// The tokens of one answer. Dropping them (the client left) is how the scheduler learns of it.
#[derive(Debug)]
pub(crate) struct Tokens {
    // Closed first, so that it is closed when the core looks.
    receiver: mpsc::Receiver<Output>,
    _leaving: Leaving,
}

/// Makes the core look who left, which it does not do by itself while nothing runs.
#[derive(Debug)]
struct Leaving(mpsc::Sender<Command>);

impl Drop for Leaving {
    fn drop(&mut self) {
        // Where there is no room, the core has work to do and looks anyway.
        let _ = self.0.try_send(Command::Look);
    }
}

/// Unix seconds.
fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
