//! Signals: the first SIGTERM or SIGINT starts the drain, a second one ends it. One during the start ends the start.
//! SIGHUP triggers a reload.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// Stop: gracefully at first, at once the second time.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// The process's signals. Made once, before anything that a signal may interrupt.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that stops the process. A SIGHUP stays for [`Signals::next`].
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }
}
