//! Shared state of all requests, and the tokens of one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::MockConfig;
use crate::core_loop::Command;
use crate::fault_script::FaultScript;
use crate::power::PowerControl;
use crate::publisher::Publisher;
use crate::sequence::{Output, Submission};
use crate::serving::adapters::LoadedAdapters;
use crate::serving::kept::KeptResponses;
use crate::serving::recorder::Recorder;
use crate::stats::MockStats;

/// Shared state of all requests.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: MockConfig,
    pub(crate) adapters: Arc<LoadedAdapters>,
    pub(crate) faults: Arc<FaultScript>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) stats: watch::Receiver<MockStats>,
    /// Counter for request ids.
    pub(crate) requests: AtomicU64,
    pub(crate) recorder: Recorder,
    pub(crate) kept: Arc<KeptResponses>,
    pub(crate) power: Arc<PowerControl>,
    /// Tasks that outlive a request.
    pub(crate) tasks: TaskTracker,
}

impl Context {
    /// Returns all counters and levels.
    pub(crate) fn stats(&self) -> MockStats {
        let side = self.power.side.as_ref();
        let [prefill_legs, decode_legs, role_violations] = side.map(|side| side.counts()).unwrap_or_default();
        MockStats {
            batches: self.publisher.batches(),
            faulted: self.faults.faulted(),
            held_streams: self.faults.held_streams(),
            prefill_legs,
            decode_legs,
            role_violations,
            ..*self.stats.borrow()
        }
    }

    /// Submits the requests of one answer; returns `false` if too many are queued.
    pub(crate) async fn submit(&self, submissions: Vec<Submission>) -> bool {
        let (accepted, answer) = oneshot::channel();
        let command = Command::Submit(submissions, accepted);
        self.commands.send(command).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Creates the channel of one answer's tokens.
    pub(super) fn tokens(&self, room: usize) -> (mpsc::Sender<Output>, Tokens) {
        let (output, receiver) = mpsc::channel(room);
        let tokens = Tokens {
            receiver,
            _leaving: LeaveNotice(self.commands.clone()),
        };
        (output, tokens)
    }

    /// Clears the prefix cache; returns `false` if anything runs.
    pub(crate) async fn reset_prefix_cache(&self) -> bool {
        let (done, answer) = oneshot::channel();
        let command = Command::ResetPrefixCache(done);
        self.commands.send(command).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Returns sixteen hex digits, unique per request.
    pub(super) fn request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!(
            "{:016x}",
            xxh3_64_with_seed(&number.to_le_bytes(), self.config.seed)
        )
    }
}

/// Tokens of one answer. Dropping them (the client disconnected) notifies the scheduler.
#[derive(Debug)]
pub(crate) struct Tokens {
    // Closed first, so that it is closed when the core looks.
    pub(super) receiver: mpsc::Receiver<Output>,
    _leaving: LeaveNotice,
}

/// Makes the core look for disconnected clients, which it does not do while idle.
#[derive(Debug)]
struct LeaveNotice(mpsc::Sender<Command>);

impl Drop for LeaveNotice {
    fn drop(&mut self) {
        // A full queue means that the core is busy and looks anyway.
        let _ = self.0.try_send(Command::Look);
    }
}

/// Returns the Unix time in seconds.
pub(super) fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
