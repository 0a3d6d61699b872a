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
use crate::power::Power;
use crate::publisher::{Publisher, PublisherError};
use crate::scheduler::Scheduler;
use crate::serving::{Context, Gate, Listening, LoadedAdapters, Recorded, Recorder, Site};
use crate::stats::MockStats;
use crate::transfer::{PdRole, Side};

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
        let (listener, address) = listen(port).await?;
        let bootstrap = match &config.pd {
            Some(pd) if pd.role == PdRole::Prefill && pd.dialect.has_bootstrap() => {
                Some(listen(pd.bootstrap_port).await?)
            }
            _ => None,
        };
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
            let ports = (address.port(), bootstrap.as_ref().map(|(_, address)| *address));
            Side::new(
                &config,
                pd,
                ports,
                commands.clone(),
                (tasks.clone(), stop.clone()),
            )
        });
        let (gate, changes) = Gate::new(&stop);
        let bootstrap_gate = match (bootstrap, &side) {
            (Some((listener, address)), Some(side)) => {
                let (gate, changes) = Gate::new(&stop);
                let site = Site::Bootstrap(Arc::clone(side));
                let listening = Listening::new(site, Arc::clone(&gate), changes, address, tasks.clone());
                tasks.spawn(listening.run(listener));
                Some(gate)
            }
            _ => None,
        };
        let power = Arc::new(Power {
            commands: commands.clone(),
            gate: Arc::clone(&gate),
            bootstrap: bootstrap_gate,
            side,
        });
        let context = Arc::new(Context {
            recorder: Recorder::new(config.recorded_requests),
            adapters: LoadedAdapters::of(&config),
            kept: Arc::default(),
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
        let site = Site::Engine(Arc::clone(&context));
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

    /// `http://127.0.0.1:port` of the bootstrap server: on the prefill side of mooncake and sglang.
    #[must_use]
    pub fn bootstrap(&self) -> Option<String> {
        let address = self.side()?.bootstrap()?;
        Some(format!("http://{address}"))
    }

    /// Who it is to other engines now, by data-parallel rank: new after every start. Empty without `pd`.
    #[must_use]
    pub fn engine_ids(&self) -> Vec<String> {
        self.side().map(|side| side.engine_ids()).unwrap_or_default()
    }

    /// The last requests of an inference path, oldest first, as they came in: also those that met a fault.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<Recorded> {
        self.context.recorder.requests(path)
    }

    fn side(&self) -> Option<&Arc<Side>> {
        self.context.power.side.as_ref()
    }

    fn leave_fabric(&self) {
        if let Some(side) = self.side() {
            side.leave();
        }
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

async fn listen(port: u16) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}
