//! Faults of the matrix: their injection and their end.

use std::time::Duration;

use harness::{SplitFleet, eventually};
use http::StatusCode;
use mock_engine::{MockEngine, RequestFault, Times};

/// Slowness beyond every timeout of the router, as a factor of the time of a prompt.
const SLOW_FACTOR: f64 = 5500.0;
/// Seconds in `Retry-After` of a busy worker.
pub(super) const RETRY_AFTER: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    /// 503 with `Retry-After`.
    PrefillBusy,
    /// 400, of either engine.
    PromptTooLong,
    /// No connection.
    PrefillRefuses,
    /// The answer breaks off in the middle.
    PrefillTorn,
    /// The worker has a new engine id, unknown to the router.
    PrefillRestarted,
    /// Killed while it computes, and back later under a new engine id.
    PrefillDies,
    /// Restarted, and back at once.
    PrefillBounces,
    /// nixl's parameters are not in the answer.
    ParamsLost,
    /// The model ends its answer with the first token if it may.
    StopsAtFirstToken,
    BootstrapDown,
    /// Computes for longer than `prefill-timeout`.
    PrefillSlow,
    PrefillHangs,
    DecodeBusy,
    DecodeRefuses,
    /// The answer breaks off after some tokens.
    DecodeCut,
    DecodeHangs,
}

impl Fault {
    /// Returns the faulty engine; without a real fault, the engine that a request reaches last.
    pub(super) fn place(self, fleet: &SplitFleet) -> &MockEngine {
        match self {
            Self::PrefillBusy
            | Self::PrefillRefuses
            | Self::PrefillTorn
            | Self::PrefillDies
            | Self::PrefillBounces
            | Self::PrefillSlow
            | Self::PrefillHangs => &fleet.prefill[0],
            _ => &fleet.decode[0],
        }
    }

    /// Returns `true` if no answer begins while it lasts.
    pub(super) fn keeps_waiting(self) -> bool {
        matches!(
            self,
            Self::PrefillDies
                | Self::PrefillBounces
                | Self::PrefillSlow
                | Self::PrefillHangs
                | Self::DecodeHangs
        )
    }

    /// Brings it about, for all requests until [`Self::end`].
    pub(super) async fn begin(self, fleet: &SplitFleet) {
        let (prefill, decode) = (fleet.prefill[0].faults(), fleet.decode[0].faults());
        let always = Times::UntilCleared;
        let busy = RequestFault::Status {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(RETRY_AFTER),
        };
        match self {
            Self::Nothing | Self::PromptTooLong => {}
            Self::PrefillBusy => prefill.on_requests(busy, always),
            Self::PrefillRefuses => prefill.refuse_connections().await.unwrap(),
            Self::PrefillTorn => prefill.on_requests(RequestFault::Cut { after_tokens: 0 }, always),
            Self::PrefillRestarted => prefill.restart(None).await.unwrap(),
            Self::ParamsLost => prefill.lose_transfer_params(true),
            Self::StopsAtFirstToken => prefill.stop_at_first_token(true),
            Self::BootstrapDown => prefill.bootstrap_down(true).await.unwrap(),
            Self::PrefillDies | Self::PrefillBounces | Self::PrefillSlow => prefill.slow_down(SLOW_FACTOR),
            Self::PrefillHangs => prefill.on_requests(RequestFault::Hang, always),
            Self::DecodeBusy => decode.on_requests(busy, always),
            Self::DecodeRefuses => decode.refuse_connections().await.unwrap(),
            Self::DecodeCut => decode.on_requests(RequestFault::Cut { after_tokens: 3 }, always),
            Self::DecodeHangs => decode.on_requests(RequestFault::Hang, always),
        }
    }

    /// Causes the part of the fault that happens to a request under way.
    pub(super) async fn strike(self, fleet: &SplitFleet, reached: impl Future<Output = ()>) {
        let faults = fleet.prefill[0].faults();
        match self {
            Self::PrefillDies => {
                reached.await;
                faults.refuse_connections().await.unwrap();
            }
            Self::PrefillBounces => {
                reached.await;
                faults.clear();
                faults.restart(None).await.unwrap();
            }
            _ => {}
        }
    }

    /// Ends the fault.
    pub(super) async fn end(self, fleet: &SplitFleet) {
        for engine in [&fleet.prefill[0], &fleet.decode[0]] {
            engine.faults().clear();
        }
        let (prefill, decode) = (fleet.prefill[0].faults(), fleet.decode[0].faults());
        match self {
            Self::PrefillRefuses => prefill.accept_connections().await.unwrap(),
            Self::DecodeRefuses => decode.accept_connections().await.unwrap(),
            Self::BootstrapDown => prefill.bootstrap_down(false).await.unwrap(),
            Self::PrefillDies => {
                prefill.restart(None).await.unwrap();
                prefill.accept_connections().await.unwrap();
            }
            // A step under way is not cut short, and the next request would wait for it.
            Self::PrefillSlow => {
                let idle = async || fleet.prefill[0].stats().in_flight() == 0;
                eventually("the slow step is over", idle).await;
            }
            _ => {}
        }
    }
}

/// Waits until an engine has received a request, or applied a fault to one, after this call: the request may be faster
/// than the waiter.
pub(super) fn reached(engine: &MockEngine) -> impl Future<Output = ()> {
    let count = || {
        let stats = engine.stats();
        stats.requests + stats.faulted
    };
    let before = count();
    async move {
        while count() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
