//! Script of faults that the engine's parts consult.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Fault of an inference request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// No answer, not even headers, until [`Faults::clear`](crate::Faults::clear) (then the request continues) or the
    /// client disconnects.
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
    /// Lasts until [`Faults::clear`](crate::Faults::clear).
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

/// Scripted faults, as seen by the engine's parts.
#[derive(Debug)]
pub(crate) struct FaultScript {
    script: Mutex<Script>,
    /// Number of calls of `clear`.
    cleared: watch::Sender<u64>,
    /// Each held stream has a clone.
    held: Arc<()>,
}

/// Faults that are scripted now.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) request: Option<(RequestFault, Times)>,
    pub(crate) slow_factor: f64,
    pub(crate) tokenize_delay: Duration,
    pub(crate) health: Option<StatusCode>,
    pub(crate) lose: (u64, BatchLoss),
    pub(crate) muted: bool,
    pub(crate) lose_params: bool,
    pub(crate) stop_at_first: bool,
    pub(crate) holds: Holds,
    faulted: u64,
}

/// Answers and streams that are held until `clear`.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// Answers are held once they are computed.
    pub(crate) answers: bool,
    /// Tokens after which streams are held, and their release.
    streams: Option<(u32, CancellationToken)>,
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
            holds: Holds::default(),
            faulted: 0,
        }
    }
}

impl Default for FaultScript {
    fn default() -> Self {
        Self {
            script: Mutex::default(),
            cleared: watch::Sender::new(0),
            held: Arc::default(),
        }
    }
}

/// Stream that is held.
#[derive(Debug)]
pub(crate) struct HeldStream {
    released: Pin<Box<WaitForCancellationFutureOwned>>,
    _counted: Arc<()>,
}

impl HeldStream {
    /// Polls for the next `clear`.
    pub(crate) fn poll_released(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.released.as_mut().poll(context)
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

    /// Waits for the next `clear` where answers are held.
    pub(crate) async fn answers_released(&self) {
        let mut cleared = {
            let script = self.lock();
            if !script.holds.answers {
                return;
            }
            self.cleared.subscribe()
        };
        // The script outlives every request, so the sender exists.
        let _ = cleared.changed().await;
    }

    /// Holds streams after so many tokens. Those that are held stay so.
    pub(crate) fn hold_streams_after(&self, tokens: u32) {
        let mut script = self.lock();
        let release = script.holds.streams.take().map(|(_, release)| release);
        script.holds.streams = Some((tokens, release.unwrap_or_default()));
    }

    /// Returns the hold of a stream that has delivered so many tokens, if any.
    pub(crate) fn hold(&self, delivered: u32) -> Option<HeldStream> {
        let script = self.lock();
        let (after, release) = script.holds.streams.as_ref()?;
        (delivered >= *after).then(|| HeldStream {
            released: Box::pin(release.clone().cancelled_owned()),
            _counted: Arc::clone(&self.held),
        })
    }

    /// Returns the number of held streams.
    pub(crate) fn held_streams(&self) -> u64 {
        Arc::strong_count(&self.held).saturating_sub(1) as u64
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

    /// Ends all faults.
    pub(crate) fn clear(&self) {
        let mut script = self.lock();
        if let Some((_, release)) = &script.holds.streams {
            release.cancel();
        }
        *script = Script {
            faulted: script.faulted,
            ..Script::default()
        };
        self.cleared.send_modify(|count| *count += 1);
    }

    /// Locks the script. Its values are plain, so they are valid even after a panic.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Script> {
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
