//! Start of a router: it serves once it follows the fleet's decisions, or after the time for that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::handle::AgreedHandle;
use super::metrics::AgreementMetrics;

/// Longest wait for a store that does not answer.
const REACH: Duration = Duration::from_secs(2);
/// Longest wait for the entries of a store that answers, and for the bytes of their policies.
const FOLLOW: Duration = Duration::from_secs(10);

/// Progress of a router that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartState {
    Waiting,
    /// The router follows the fleet's decisions.
    Followed,
    /// There is no store.
    Alone,
}

/// Wait of a started router for the fleet's decisions: a restarted one has lost those that it followed before.
#[derive(Debug)]
pub struct AgreedStart {
    handle: AgreedHandle,
    metrics: Arc<AgreementMetrics>,
}

impl AgreedHandle {
    /// Records that this router follows every decision of the store that it can follow.
    pub fn note_followed(&self) {
        self.end_start(StartState::Followed);
    }

    /// Records that this router has no store: its start waits for none.
    pub fn note_alone(&self) {
        self.end_start(StartState::Alone);
    }

    fn end_start(&self, end: StartState) {
        self.start().send_if_modified(|state| {
            let is_first = *state == StartState::Waiting;
            if is_first {
                *state = end;
            }
            is_first
        });
    }
}

impl AgreedStart {
    /// Returns the wait.
    #[must_use]
    pub fn new(handle: AgreedHandle, metrics: Arc<AgreementMetrics>) -> Self {
        Self { handle, metrics }
    }

    /// Waits until the router follows the fleet's decisions, for a bounded time.
    pub async fn wait(self) {
        match self.state().await {
            StartState::Alone => {}
            StartState::Followed => info!("this router follows the fleet's decisions"),
            StartState::Waiting => {
                self.metrics.set_early_start();
                let problem = self.handle.view().problem.clone();
                let why = problem.unwrap_or_else(|| "a decision is not applied yet".to_owned());
                warn!(why, "this router serves before it follows the fleet's decisions");
            }
        }
    }

    /// Waits for the end of the start. Returns [`StartState::Waiting`] once the time for it is over.
    async fn state(&self) -> StartState {
        let mut states = self.handle.start().subscribe();
        let ended = states.wait_for(|state| *state != StartState::Waiting);
        let late = async {
            sleep(REACH).await;
            if self.handle.view().is_open {
                sleep(FOLLOW - REACH).await;
            }
        };
        tokio::select! {
            biased;
            state = ended => state.map_or(StartState::Alone, |state| *state),
            () = late => StartState::Waiting,
        }
    }
}
