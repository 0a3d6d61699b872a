//! Power control: turns an engine or only its bootstrap server off and on, and restarts it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::core_loop::Command;
use crate::gate::{EngineGone, Gate};
use crate::serving::{KeptResponses, LoadedAdapters};
use crate::transfer::TransferEndpoint;

/// Parts that are turned off together.
#[derive(Debug)]
pub(crate) struct PowerControl {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) gate: Arc<Gate>,
    /// Gate of the bootstrap server, if there is one.
    pub(crate) bootstrap: Option<Arc<Gate>>,
    pub(crate) side: Option<Arc<TransferEndpoint>>,
    /// Adapters and responses, which are in the memory of the process.
    pub(crate) adapters: Arc<LoadedAdapters>,
    pub(crate) kept: Arc<KeptResponses>,
}

impl PowerControl {
    /// Makes the engine unreachable or reachable.
    pub(crate) async fn set_on(&self, on: bool) -> Result<(), EngineGone> {
        if let Some(side) = &self.side {
            side.set_reachable(on);
        }
        self.set_bootstrap_on(on).await?;
        self.gate.set_open(on).await
    }

    /// Turns only the bootstrap server off or on, if there is one.
    pub(crate) async fn set_bootstrap_on(&self, on: bool) -> Result<(), EngineGone> {
        match &self.bootstrap {
            Some(gate) => gate.set_open(on).await,
            None => Ok(()),
        }
    }

    /// Restarts the process: connections, cache, transfers, identity, stored responses and adapters loaded at run time
    /// are gone.
    pub(crate) async fn restart(&self, hash_seed: Option<u64>) -> Result<(), EngineGone> {
        self.gate.close_connections();
        if let Some(gate) = &self.bootstrap {
            gate.close_connections();
        }
        if let Some(side) = &self.side {
            side.begin_life();
        }
        // Before the engine is back: a new request must find neither.
        self.adapters.restart();
        self.kept.clear();
        let (done, wait) = oneshot::channel();
        let restart = Command::Restart(hash_seed, done);
        self.commands.send(restart).await.map_err(|_| EngineGone)?;
        wait.await.map_err(|_| EngineGone)
    }

    /// Acts like a failed assertion: the process is gone until it is turned on again.
    pub(crate) async fn die(&self) {
        // Fails only if the engine was stopped.
        let _ = self.set_on(false).await;
        let _ = self.restart(None).await;
    }
}
