//! Gate of a listener: opens and closes it, and closes its connections.

use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Command to open or close, and the sender to notify once that is done.
pub(crate) type Change = (bool, oneshot::Sender<()>);

/// The engine was stopped before the command was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("reach the mock engine: it was stopped")]
pub struct EngineGone;

/// Opens and closes the listener from outside.
#[derive(Debug)]
pub(crate) struct Gate {
    changes: mpsc::Sender<Change>,
    /// Ends the listener.
    pub(crate) stop: CancellationToken,
    /// Cancels all open connections; replaced afterwards.
    connections: Mutex<CancellationToken>,
}

impl Gate {
    /// Creates a gate and its receiving end, for the listener.
    pub(crate) fn new(stop: &CancellationToken) -> (Arc<Self>, mpsc::Receiver<Change>) {
        let (sender, changes) = mpsc::channel(1);
        let gate = Self {
            changes: sender,
            stop: stop.clone(),
            connections: Mutex::new(stop.child_token()),
        };
        (Arc::new(gate), changes)
    }

    /// Opens or closes, and waits until that is done.
    pub(crate) async fn set_open(&self, open: bool) -> Result<(), EngineGone> {
        let (done, wait) = oneshot::channel();
        self.changes.send((open, done)).await.map_err(|_| EngineGone)?;
        wait.await.map_err(|_| EngineGone)
    }

    /// Closes every open connection.
    pub(crate) fn close_connections(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.cancel();
        *connections = self.stop.child_token();
    }

    /// Returns the token of the connections that are open now.
    pub(crate) fn connection(&self) -> CancellationToken {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.clone()
    }
}
