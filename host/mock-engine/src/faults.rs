//! Fault injection: the script that the engine's parts consult, and the handle for tests to write it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;
use tokio::sync::watch;

use crate::power::Power;

/// Fault of an inference request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// No answer, not even headers, until [`Faults::clear`] (then the request continues) or the client disconnects.
    Hang,
    /// An error status instead of an answer.
    Status {
        /// Such as 429, 500 or 503.
        status: StatusCode,
        /// `Retry-After` in whole seconds.
        retry_after: Option<u32>,
    },
    /// The connection is closed after this many tokens (for an unstreamed answer: halfway through its body).
    Cut {
        /// Tokens that are delivered.
        after_tokens: u32,
    },
}

/// Number of requests with the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The next requests only.
    Next(u32),
    /// Until [`Faults::clear`].
    UntilCleared,
}

/// Place where a batch of events is lost. Its sequence number is used up in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchLoss {
    /// Lost on the wire: a replay still has it.
    OnWire,
    /// Lost everywhere, like a batch that the replay buffer has dropped.
    Everywhere,
}

/// The engine was stopped before the command was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("reach the mock engine: it was stopped")]
pub struct EngineGone;

/// Handle for scripted faults. Cheap to clone; has no effect once the engine is stopped.
#[derive(Debug, Clone)]
pub struct Faults {
    script: Arc<FaultScript>,
    power: Arc<Power>,
}

impl Faults {
    pub(crate) fn new(script: Arc<FaultScript>, power: Arc<Power>) -> Self {
        Self { script, power }
    }

    /// Sets the fault of inference requests (chat, completions, responses, embeddings). It replaces an earlier one.
    pub fn on_requests(&self, fault: RequestFault, times: Times) {
        self.script.lock().request = Some((fault, times));
    }

    /// Multiplies the time of every step by `factor`; 1 is normal. Values that are not positive numbers count as 1.
    pub fn slow_down(&self, factor: f64) {
        self.script.lock().slow_factor = if factor > 0.0 { factor } else { 1.0 };
    }

    /// Delays `/tokenize`, in real time.
    pub fn slow_tokenize(&self, delay: Duration) {
        self.script.lock().tokenize_delay = delay;
    }

    /// Sets the status of `/health`; `None` for normal.
    pub fn fail_health(&self, status: Option<StatusCode>) {
        self.script.lock().health = status;
    }

    /// Loses the next batches of events.
    pub fn lose_batches(&self, batches: u64, loss: BatchLoss) {
        self.script.lock().lose = (batches, loss);
    }

    /// Mutes the publisher: it sends nothing and answers no replay, but numbers and keeps batches.
    pub fn mute_publisher(&self, muted: bool) {
        self.script.lock().muted = muted;
    }

    /// Omits `kv_transfer_params` from answers to prefill legs; the blocks are kept nevertheless.
    pub fn lose_transfer_params(&self, lost: bool) {
        self.script.lock().lose_params = lost;
    }

    /// Ends every answer with its first token, which also matches any stop of the client: it ends with "stop", unless
    /// the request has `ignore_eos` and no `stop` or `stop_token_ids`.
    pub fn stop_at_first_token(&self, stop: bool) {
        self.script.lock().stop_at_first = stop;
    }

    /// Ends all faults set with the functions above; hanging requests continue.
    pub fn clear(&self) {
        self.script.clear();
    }

    /// Closes the HTTP listener, the bootstrap server and every connection, and removes the engine from its
    /// [`Fabric`](crate::Fabric), like a crashed process. The ports stay reserved.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn refuse_connections(&self) -> Result<(), EngineGone> {
        self.power.set_on(false).await
    }

    /// Listens again on the same ports.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn accept_connections(&self) -> Result<(), EngineGone> {
        self.power.set_on(true).await
    }

    /// Closes or opens only the bootstrap server, if there is one.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn bootstrap_down(&self, down: bool) -> Result<(), EngineGone> {
        self.power.set_bootstrap_on(!down).await
    }

    /// Restarts the process: connections are closed, the cache is cleared without an announcement, sequence numbers
    /// start at 0 and the replay buffer is empty. With a `hash_seed`, blocks get other hashes. Blocks kept for other
    /// engines and awaited transfers are gone, and the engine ids are new. The ports stay bound: to have subscribers
    /// reconnect too, stop the engine and start one on the same ports.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn restart(&self, hash_seed: Option<u64>) -> Result<(), EngineGone> {
        self.power.restart(hash_seed).await
    }
}

/// Scripted faults, as seen by the engine's parts.
#[derive(Debug)]
pub(crate) struct FaultScript {
    script: Mutex<Script>,
    /// Number of calls of `clear`.
    cleared: watch::Sender<u64>,
}

#[derive(Debug)]
struct Script {
    request: Option<(RequestFault, Times)>,
    slow_factor: f64,
    tokenize_delay: Duration,
    health: Option<StatusCode>,
    lose: (u64, BatchLoss),
    muted: bool,
    lose_params: bool,
    stop_at_first: bool,
    faulted: u64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            request: None,
            slow_factor: 1.0,
            tokenize_delay: Duration::ZERO,
            health: None,
            lose: (0, BatchLoss::OnWire),
            muted: false,
            lose_params: false,
            stop_at_first: false,
            faulted: 0,
        }
    }
}

impl Default for FaultScript {
    fn default() -> Self {
        Self {
            script: Mutex::default(),
            cleared: watch::Sender::new(0),
        }
    }
}

/// The fault of a request.
pub(crate) struct MetFault {
    pub(crate) fault: RequestFault,
    cleared: watch::Receiver<u64>,
}

impl MetFault {
    /// Waits for the next `clear`.
    pub(crate) async fn cleared(&mut self) {
        // The script outlives every request, so the sender exists.
        let _ = self.cleared.changed().await;
    }
}

impl FaultScript {
    /// Returns the fault of this request, if any.
    pub(crate) fn meet(&self) -> Option<MetFault> {
        let mut script = self.lock();
        let (fault, times) = script.request?;
        script.request = match times {
            Times::UntilCleared => script.request,
            Times::Next(0) => None,
            Times::Next(left) => Some((fault, Times::Next(left - 1))),
        };
        if times == Times::Next(0) {
            return None;
        }
        script.faulted += 1;
        Some(MetFault {
            fault,
            cleared: self.cleared.subscribe(),
        })
    }

    /// Returns the loss of the batch being published, if any.
    pub(crate) fn next_loss(&self) -> Option<BatchLoss> {
        let mut script = self.lock();
        let (left, loss) = script.lose;
        script.lose.0 = left.saturating_sub(1);
        let muted = script.muted.then_some(BatchLoss::OnWire);
        (left > 0).then_some(loss).or(muted)
    }

    pub(crate) fn muted(&self) -> bool {
        self.lock().muted
    }

    pub(crate) fn loses_transfer_params(&self) -> bool {
        self.lock().lose_params
    }

    pub(crate) fn stops_at_first_token(&self) -> bool {
        self.lock().stop_at_first
    }

    pub(crate) fn slow_factor(&self) -> f64 {
        self.lock().slow_factor
    }

    pub(crate) fn tokenize_delay(&self) -> Duration {
        self.lock().tokenize_delay
    }

    pub(crate) fn health(&self) -> Option<StatusCode> {
        self.lock().health
    }

    /// Returns the number of requests with a fault.
    pub(crate) fn faulted(&self) -> u64 {
        self.lock().faulted
    }

    fn clear(&self) {
        let mut script = self.lock();
        *script = Script {
            faulted: script.faulted,
            ..Script::default()
        };
        self.cleared.send_modify(|count| *count += 1);
    }

    /// Locks the script. Its values are plain, so they are valid even after a panic.
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_happens_as_often_as_it_was_scripted() {
        let script = FaultScript::default();
        let happens = |script: &FaultScript| script.meet().is_some();
        assert!(!happens(&script));
        script.lock().request = Some((RequestFault::Hang, Times::Next(2)));
        assert_eq!(
            [happens(&script), happens(&script), happens(&script)],
            [true, true, false]
        );
        script.lock().request = Some((RequestFault::Hang, Times::UntilCleared));
        assert_eq!([happens(&script), happens(&script)], [true, true]);
        script.clear();
        assert!(!happens(&script));
        assert_eq!(script.faulted(), 4);
    }

    #[test]
    fn batches_get_lost_one_by_one() {
        let script = FaultScript::default();
        script.lock().lose = (1, BatchLoss::Everywhere);
        assert_eq!(script.next_loss(), Some(BatchLoss::Everywhere));
        assert_eq!(script.next_loss(), None);
    }
}
