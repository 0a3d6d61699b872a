//! Fault injection: the handle by which tests write the script of faults.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::fault_script::{BatchLoss, FaultScript, RequestFault, Times};
use crate::gate::EngineGone;
use crate::power::PowerControl;

/// Handle for scripted faults. Cheap to clone; has no effect once the engine is stopped.
#[derive(Debug, Clone)]
pub struct Faults {
    script: Arc<FaultScript>,
    power: Arc<PowerControl>,
}

impl Faults {
    pub(crate) fn new(script: Arc<FaultScript>, power: Arc<PowerControl>) -> Self {
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

    /// Computes requests, transfers included, and holds their answers until [`Self::clear`] or the client disconnects.
    pub fn hold_answers(&self) {
        self.script.lock().holds.answers = true;
    }

    /// Holds streams that have sent so many tokens, those under way too, until [`Self::clear`] or the client
    /// disconnects. The engine computes their tokens meanwhile; see [`MockStats::held_streams`].
    ///
    /// [`MockStats::held_streams`]: crate::MockStats::held_streams
    pub fn hold_streams_after(&self, tokens: u32) {
        self.script.hold_streams_after(tokens);
    }

    /// Ends all faults set with the functions above; hanging requests continue, and what is held is sent.
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
    /// engines, awaited transfers, stored responses and adapters loaded at run time are gone, and the engine ids are
    /// new. The ports stay bound: to have subscribers reconnect too, stop the engine and start one on the same ports.
    ///
    /// # Errors
    /// [`EngineGone`] after a stop.
    pub async fn restart(&self, hash_seed: Option<u64>) -> Result<(), EngineGone> {
        self.power.restart(hash_seed).await
    }
}
