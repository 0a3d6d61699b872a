//! Faults on purpose: the script the engine's parts consult, and the handle tests write it with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;
use tokio::sync::watch;

use crate::power::Power;

/// What can happen to an inference request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// No answer, not even headers, until [`Faults::clear`] (then the request goes on) or the client leaves.
    Hang,
    /// An error instead of an answer.
    Status {
        /// Such as 429, 500 or 503.
        status: StatusCode,
        /// `Retry-After` in whole seconds.
        retry_after: Option<u32>,
    },
    /// The connection is closed after so many tokens (a plain answer: halfway through its body).
    Cut {
        /// Tokens that get through.
        after_tokens: u32,
    },
}

/// How often a request fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// To the next requests only.
    Next(u32),
    /// Until [`Faults::clear`].
    UntilCleared,
}

/// Where a batch of events gets lost. Either way its sequence number is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchLoss {
    /// On the wire: a replay still has it.
    OnWire,
    /// Everywhere: as if it had fallen out of the replay buffer.
    Everywhere,
}

/// The engine was stopped before it could do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("reach the mock engine: it was stopped")]
pub struct EngineGone;

/// Scripts faults at run time. Cheap to clone; does nothing once the engine is stopped.
#[derive(Debug, Clone)]
pub struct Faults {
    script: Arc<FaultScript>,
    power: Arc<Power>,
}

impl Faults {
    pub(crate) fn new(script: Arc<FaultScript>, power: Arc<Power>) -> Self {
        Self { script, power }
    }

    /// Something happens to inference requests (chat, completions, responses, embeddings) from now on, instead
    /// of what was scripted before.
    pub fn on_requests(&self, fault: RequestFault, times: Times) {
        self.script.lock().request = Some((fault, times));
    }

    /// Every step takes `factor` times as long; 1 is normal. Other than positive numbers count as 1.
    pub fn slow_down(&self, factor: f64) {
        self.script.lock().slow_factor = if factor > 0.0 { factor } else { 1.0 };
    }

    /// `/tokenize` takes so long, in real time.
    pub fn slow_tokenize(&self, delay: Duration) {
        self.script.lock().tokenize_delay = delay;
    }

    /// `/health` answers this status; none is normal.
    pub fn fail_health(&self, status: Option<StatusCode>) {
        self.script.lock().health = status;
    }

    /// The next batches of events get lost.
    pub fn lose_batches(&self, batches: u64, loss: BatchLoss) {
        self.script.lock().lose = (batches, loss);
    }

    /// While muted the publisher sends nothing and answers no replay, but numbers and keeps what there is.
    pub fn mute_publisher(&self, muted: bool) {
        self.script.lock().muted = muted;
    }

    /// Answers to prefill legs lack their `kv_transfer_params`; the blocks are kept nevertheless.
    pub fn lose_transfer_params(&self, lost: bool) {
        self.script.lock().lose_params = lost;
    }

    /// The model ends every answer with its first token, which also matches any stop the client named: it ends
    /// with "stop", unless the request has `ignore_eos` and no `stop` or `stop_token_ids`.
    pub fn stop_at_first_token(&self, stop: bool) {
        self.script.lock().stop_at_first = stop;
    }

    /// Everything scripted with the functions above is over; requests that hang go on.
    pub fn clear(&self) {
        self.script.clear();
    }

    /// Closes the HTTP listener, the bootstrap server and every connection, and takes the engine off its
    /// [`Fabric`](crate::Fabric), like a process that died. The ports stay reserved.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn refuse_connections(&self) -> Result<(), EngineGone> {
        self.power.set_on(false).await
    }

    /// Listens again, on the same ports.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn accept_connections(&self) -> Result<(), EngineGone> {
        self.power.set_on(true).await
    }

    /// Closes or opens the bootstrap server alone; nothing where there is none.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn bootstrap_down(&self, down: bool) -> Result<(), EngineGone> {
        self.power.set_bootstrap_on(!down).await
    }

    /// The process starts over: connections are closed, the cache is empty without an announcement, sequence
    /// numbers start at 0 and the replay buffer is empty; with a `hash_seed`, blocks get other hashes. Whatever
    /// was kept for other engines or awaited from them is gone, and its engine ids are new. The ports stay bound:
    /// to have subscribers reconnect too, stop the engine and start one on the same ports.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn restart(&self, hash_seed: Option<u64>) -> Result<(), EngineGone> {
        self.power.restart(hash_seed).await
    }
}

/// What is to go wrong, as the engine's parts see it.
#[derive(Debug)]
pub(crate) struct FaultScript {
    script: Mutex<Script>,
    /// Counts the calls of `clear`.
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

/// A fault that met a request.
pub(crate) struct Met {
    pub(crate) fault: RequestFault,
    cleared: watch::Receiver<u64>,
}

impl Met {
    /// Waits for the next `clear`.
    pub(crate) async fn cleared(&mut self) {
        // The script outlives every request, so the sender is there.
        let _ = self.cleared.changed().await;
    }
}

impl FaultScript {
    /// The fault this request meets, if any.
    pub(crate) fn meet(&self) -> Option<Met> {
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
        Some(Met {
            fault,
            cleared: self.cleared.subscribe(),
        })
    }

    /// How the batch that is published now gets lost, if it does.
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

    /// Requests that met a fault.
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

    /// Plain values: what a panic elsewhere left behind is still good.
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
