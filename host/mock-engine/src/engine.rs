//! Puts an engine together, starts it and ends it. The only place that knows all the parts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{InvalidConfig, MockConfig};
use crate::core_loop::{COMMAND_QUEUE, CoreLoop};
use crate::faults::{FaultScript, Faults};
use crate::publisher::{Publisher, PublisherError};
use crate::scheduler::Scheduler;
use crate::serving::{Context, Gate, Listening};
use crate::stats::MockStats;

/// Why an engine did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// It could never serve.
    #[error("use the mock engine's configuration")]
    Config(#[source] InvalidConfig),
    /// No HTTP port.
    #[error("listen on `127.0.0.1:{port}`")]
    Listen {
        /// As configured; 0 where the system was to choose.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No sockets for events.
    #[error("start the publisher of cache events")]
    Publisher(#[source] PublisherError),
}

/// A running engine. Dropping it stops it; [`Self::stop`] also waits until everything ended.
#[derive(Debug)]
pub struct MockEngine {
    address: SocketAddr,
    context: Arc<Context>,
    faults: Faults,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl MockEngine {
    /// Binds every port, then serves, on the current tokio runtime.
    ///
    /// # Errors
    /// [`StartError`] when the configuration makes no sense or a port is taken.
    pub async fn start(config: MockConfig) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let port = config.port;
        let listen = |source| StartError::Listen { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let script = Arc::<FaultScript>::default();
        let publisher = Publisher::start(&config, Arc::clone(&script)).map_err(StartError::Publisher)?;
        let publisher = Arc::new(publisher);

        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (commands, queue) = mpsc::channel(COMMAND_QUEUE);
        let (stats, latest) = watch::channel(MockStats::default());
        tasks.spawn(
            CoreLoop {
                scheduler: Scheduler::new(&config),
                commands: queue,
                publisher: Arc::clone(&publisher),
                faults: Arc::clone(&script),
                stats,
                time_scale: config.time_scale,
                stop: stop.clone(),
            }
            .run(),
        );
        let context = Arc::new(Context {
            config,
            faults: Arc::clone(&script),
            commands: commands.clone(),
            publisher,
            stats: latest,
            requests: AtomicU64::new(0),
        });
        let (gate, changes) = Gate::new(&stop);
        let faults = Faults::new(script, commands, Arc::clone(&gate));
        let listening = Listening::new(Arc::clone(&context), gate, changes, address, tasks.clone());
        tasks.spawn(listening.run(listener));
        Ok(Self {
            address,
            context,
            faults,
            stop,
            tasks,
        })
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.address
    }

    /// What a SUB socket connects to: `tcp://127.0.0.1:port`.
    #[must_use]
    pub fn kv_events(&self) -> &str {
        self.context.publisher.events()
    }

    /// What a DEALER socket connects to for replays: `tcp://127.0.0.1:port`.
    #[must_use]
    pub fn kv_replay(&self) -> &str {
        self.context.publisher.replay()
    }

    /// As it was configured.
    #[must_use]
    pub fn config(&self) -> &MockConfig {
        &self.context.config
    }

    /// Counters and levels now. What a client has been told has been counted before.
    #[must_use]
    pub fn stats(&self) -> MockStats {
        self.context.stats()
    }

    /// Scripts faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Forgets the prefix cache, like `POST /reset_prefix_cache`; false, and nothing happens, while any request
    /// runs. Announced with the next step that runs, not before.
    pub async fn reset_prefix_cache(&self) -> bool {
        self.context.reset_prefix_cache().await
    }

    /// Ends the engine: connections are closed, ports are free, no task or thread is left when it returns.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.context.publisher.stop();
    }
}

impl Drop for MockEngine {
    fn drop(&mut self) {
        self.stop.cancel();
        self.context.publisher.stop();
    }
}
