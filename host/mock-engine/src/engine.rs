//! Mock engine: assembles, starts and stops all parts.

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
use crate::fault_script::FaultScript;
use crate::faults::Faults;
use crate::gate::Gate;
use crate::power::PowerControl;
use crate::publisher::{Publisher, PublisherError};
use crate::scheduler::Scheduler;
use crate::serving::{Context, ListenerService, Listening, LoadedAdapters, Recorded, Recorder};
use crate::stats::MockStats;
use crate::transfer::{EndpointParts, PdRole, TransferEndpoint};

/// Error of starting an engine.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error("use the mock engine's configuration")]
    Config(#[source] InvalidConfig),
    /// The HTTP port is not available.
    #[error("listen on `127.0.0.1:{port}`")]
    Listen {
        /// The configured port; 0 for any free one.
        port: u16,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The event sockets are not available.
    #[error("start the publisher of cache events")]
    Publisher(#[source] PublisherError),
}

/// A running engine. Dropping it stops it; [`Self::stop`] also waits for the end of everything.
#[derive(Debug)]
pub struct MockEngine {
    address: SocketAddr,
    context: Arc<Context>,
    faults: Faults,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl MockEngine {
    /// Binds every port, then serves on the current tokio runtime.
    ///
    /// # Errors
    /// [`StartError`] if the configuration is invalid or a port is taken.
    pub async fn start(config: MockConfig) -> Result<Self, StartError> {
        config.check().map_err(StartError::Config)?;
        let port = config.port;
        let (listener, address) = listen(port).await?;
        let bootstrap = listen_for_bootstrap(&config).await?;
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
        let side = config.pd.clone().map(|pd| {
            let parts = EndpointParts {
                port: address.port(),
                bootstrap: bootstrap.as_ref().map(|(_, address)| *address),
                commands: commands.clone(),
                tasks: tasks.clone(),
                stop: stop.clone(),
            };
            TransferEndpoint::new(&config, pd, parts)
        });
        let (gate, changes) = Gate::new(&stop);
        let bootstrap_gate = bootstrap.zip(side.as_ref()).map(|((listener, address), side)| {
            let (gate, changes) = Gate::new(&stop);
            let site = ListenerService::Bootstrap(Arc::clone(side));
            let listening = Listening::new(site, Arc::clone(&gate), changes, address, tasks.clone());
            tasks.spawn(listening.run(listener));
            gate
        });
        let (adapters, kept) = (Arc::new(LoadedAdapters::of(&config)), Arc::default());
        let power = Arc::new(PowerControl {
            commands: commands.clone(),
            gate: Arc::clone(&gate),
            bootstrap: bootstrap_gate,
            side,
            adapters: Arc::clone(&adapters),
            kept: Arc::clone(&kept),
        });
        let context = Arc::new(Context {
            recorder: Recorder::new(config.recorded_requests),
            adapters,
            kept,
            config,
            faults: Arc::clone(&script),
            commands,
            publisher,
            stats: latest,
            requests: AtomicU64::new(0),
            power: Arc::clone(&power),
            tasks: tasks.clone(),
        });
        let faults = Faults::new(script, power);
        let site = ListenerService::Engine(Arc::clone(&context));
        let listening = Listening::new(site, gate, changes, address, tasks.clone());
        tasks.spawn(listening.run(listener));
        Ok(Self {
            address,
            context,
            faults,
            stop,
            tasks,
        })
    }

    /// Returns `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the HTTP address.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns `http://127.0.0.1:port` of the bootstrap server, which the prefill side of mooncake and sglang has.
    #[must_use]
    pub fn bootstrap(&self) -> Option<String> {
        let address = self.side()?.bootstrap()?;
        Some(format!("http://{address}"))
    }

    /// Returns the current engine ids by data-parallel rank: new after every start. Empty without `pd`.
    #[must_use]
    pub fn engine_ids(&self) -> Vec<String> {
        self.side().map(|side| side.engine_ids()).unwrap_or_default()
    }

    /// Returns the last requests of an inference path, oldest first, including those with a fault.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<Recorded> {
        self.context.recorder.requests(path)
    }

    fn side(&self) -> Option<&Arc<TransferEndpoint>> {
        self.context.power.side.as_ref()
    }

    fn leave_fabric(&self) {
        if let Some(side) = self.side() {
            side.leave();
        }
    }

    /// Returns the endpoint for SUB sockets: `tcp://127.0.0.1:port`.
    #[must_use]
    pub fn kv_events(&self) -> &str {
        self.context.publisher.events()
    }

    /// Returns the endpoint for DEALER sockets of replays: `tcp://127.0.0.1:port`.
    #[must_use]
    pub fn kv_replay(&self) -> &str {
        self.context.publisher.replay()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &MockConfig {
        &self.context.config
    }

    /// Returns the current counters and levels. Events visible to a client are already counted.
    #[must_use]
    pub fn stats(&self) -> MockStats {
        self.context.stats()
    }

    /// Returns the handle for scripted faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Clears the prefix cache, like `POST /reset_prefix_cache`. Returns `false` and does nothing if any request runs.
    /// The next step announces it.
    pub async fn reset_prefix_cache(&self) -> bool {
        self.context.reset_prefix_cache().await
    }

    /// Stops the engine. Afterwards all connections are closed, all ports free, all tasks and threads ended.
    pub async fn stop(self) {
        self.stop.cancel();
        self.leave_fabric();
        self.tasks.close();
        self.tasks.wait().await;
        self.context.publisher.stop();
    }
}

impl Drop for MockEngine {
    fn drop(&mut self) {
        self.stop.cancel();
        self.leave_fabric();
        self.context.publisher.stop();
    }
}

/// Binds the port of the bootstrap server, where the engine has one.
async fn listen_for_bootstrap(config: &MockConfig) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    Ok(match &config.pd {
        Some(pd) if pd.role == PdRole::Prefill && pd.dialect.has_bootstrap() => {
            Some(listen(pd.bootstrap_port).await?)
        }
        _ => None,
    })
}

async fn listen(port: u16) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}
