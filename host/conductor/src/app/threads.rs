//! Threads of a router besides those that serve: reload, index maintenance, the writer of policy state, and the
//! exchange with other routers.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use admin_pages::control::ReloadCommand;
use decision_log::Recorder;
use kv_index::SharedPrefixIndex;
use proxy::Proxy;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use trace_export::TraceExporter;
use tracing::error;

use crate::reload::Reloader;
use crate::replicas::Replicas;
use kv_plane::IndexMaintenance;
use policy_store::{MemoryWriter, MemoryWriterHandle};

/// Running threads, and the recorder and the exporter, which have their own.
pub(super) struct Threads {
    /// Commands for the reload thread.
    pub(super) commands: SyncSender<ReloadCommand>,
    reload: JoinHandle<()>,
    maintenance: JoinHandle<()>,
    memory_writer: MemoryWriterHandle,
    exchange: Option<JoinHandle<()>>,
    recorder: Arc<Recorder>,
    exporter: Arc<TraceExporter>,
}

/// Parts that the threads work on.
pub(super) struct ThreadParts {
    pub(super) reloader: Box<Reloader>,
    pub(super) memory_writer: MemoryWriter,
    /// Exchange with other routers, if it is configured.
    pub(super) replicas: Option<Replicas>,
    pub(super) index: Arc<SharedPrefixIndex>,
    pub(super) proxy: Arc<Proxy>,
}

/// Error of starting a thread.
#[derive(Debug, Error)]
pub(super) enum StartError {
    #[error("failed to start the reload thread")]
    Reload(#[source] io::Error),
    #[error("failed to start the maintenance of the index")]
    IndexMaintenance(#[source] io::Error),
    #[error("failed to start the writer of policy state")]
    MemoryWriter(#[source] io::Error),
    #[error("failed to start the exchange with other routers")]
    Exchange(#[source] io::Error),
}

impl Threads {
    /// Starts them; they end soon after `stop` is cancelled.
    pub(super) fn start(parts: ThreadParts, stop: &CancellationToken) -> Result<Self, StartError> {
        let ThreadParts {
            reloader,
            memory_writer,
            replicas,
            index,
            proxy,
        } = parts;
        let recorder = Arc::clone(&reloader.live.recorder);
        let exporter = Arc::clone(&reloader.live.exporter);
        let (commands, reload) = reloader.spawn(stop.clone()).map_err(StartError::Reload)?;
        let expectations = move || proxy.take_expectations();
        let maintenance = IndexMaintenance::spawn(index, expectations, stop.clone())
            .map_err(StartError::IndexMaintenance)?;
        let memory_writer = memory_writer.spawn().map_err(StartError::MemoryWriter)?;
        let exchange = replicas.map(|replicas| replicas.spawn(stop.clone())).transpose();
        Ok(Self {
            commands,
            reload,
            maintenance,
            memory_writer,
            exchange: exchange.map_err(StartError::Exchange)?,
            recorder,
            exporter,
        })
    }

    /// Waits until the threads have ended and everything is written. Their token has been cancelled.
    pub(super) async fn end(self) {
        // Wakes the thread, which then ends. A full channel has woken it already.
        let _ = self.commands.try_send(ReloadCommand::Changed);
        self.maintenance.thread().unpark();
        let joined = tokio::task::spawn_blocking(move || {
            self.recorder.close();
            self.exporter.close();
            // Its last message is its goodbye.
            let exchange = self.exchange.map_or(Ok(()), JoinHandle::join);
            let (reload, maintenance) = (self.reload.join(), self.maintenance.join());
            exchange
                .and(reload)
                .and(maintenance)
                .and(self.memory_writer.end())
        });
        if !matches!(joined.await, Ok(Ok(()))) {
            error!("a background thread had panicked; its message is on stderr");
        }
    }
}
