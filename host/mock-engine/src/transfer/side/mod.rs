//! One engine's side of disaggregated pairs: its identity on the network and its counters. `side/legs.rs` has the
//! roles of requests.

mod legs;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::MockConfig;
use crate::core_loop::Command;
use crate::transfer::decode::transfer_time;
use crate::transfer::fabric::Fabric;
use crate::transfer::{PdConfig, PdDialect};

pub(crate) use legs::{Denied, Legs, Opening};

/// Longest wait in real time, so that no time scale overflows a clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// One engine's side.
#[derive(Debug)]
pub(crate) struct TransferEndpoint {
    config: PdConfig,
    time_scale: f64,
    block_size: usize,
    ranks: u16,
    port: u16,
    bootstrap: Option<SocketAddr>,
    commands: mpsc::Sender<Command>,
    tasks: TaskTracker,
    stop: CancellationToken,
    life: Mutex<EngineLife>,
    ids: AtomicU64,
    prefill_legs: AtomicU64,
    decode_legs: AtomicU64,
    role_violations: AtomicU64,
}

/// Parts of the engine that its side uses.
#[derive(Debug)]
pub(crate) struct EndpointParts {
    /// Port of the engine.
    pub(crate) port: u16,
    /// Address of its bootstrap server.
    pub(crate) bootstrap: Option<SocketAddr>,
    /// Commands to its core loop.
    pub(crate) commands: mpsc::Sender<Command>,
    /// Its tasks.
    pub(crate) tasks: TaskTracker,
    /// Ends with the engine.
    pub(crate) stop: CancellationToken,
}

/// State from one start of the engine to the next.
#[derive(Debug)]
struct EngineLife {
    /// One id per data-parallel rank.
    engine_ids: Vec<String>,
    reachable: bool,
    /// Ends the transfers of this life.
    over: CancellationToken,
}

impl TransferEndpoint {
    /// Creates an engine without identity; see [`Self::begin_life`].
    pub(crate) fn new(mock: &MockConfig, config: PdConfig, parts: EndpointParts) -> Arc<Self> {
        let EndpointParts {
            port,
            bootstrap,
            commands,
            tasks,
            stop,
        } = parts;
        let life = EngineLife {
            engine_ids: Vec::new(),
            reachable: true,
            over: stop.child_token(),
        };
        let side = Arc::new(Self {
            time_scale: mock.time_scale,
            block_size: mock.block_size as usize,
            ranks: mock.dp_ranks,
            config,
            port,
            bootstrap,
            commands,
            tasks,
            stop,
            life: Mutex::new(life),
            ids: AtomicU64::new(0),
            prefill_legs: AtomicU64::new(0),
            decode_legs: AtomicU64::new(0),
            role_violations: AtomicU64::new(0),
        });
        side.begin_life();
        side
    }

    /// Starts or restarts the engine: earlier transfers are gone and its ids are new.
    pub(crate) fn begin_life(&self) {
        self.leave();
        let mut life = self.life();
        let id = self.fabric().new_engine_id();
        life.engine_ids = match self.bootstrap {
            Some(address) if self.config.dialect == PdDialect::Sglang => vec![address.to_string()],
            _ if self.ranks == 1 => vec![id],
            _ => (0..self.ranks).map(|rank| format!("{id}_dp{rank}")).collect(),
        };
        life.over = self.stop.child_token();
        for engine in &life.engine_ids {
            self.fabric().join(engine.clone(), self.port, life.reachable);
        }
    }

    /// Sets if others can reach the engine.
    pub(crate) fn set_reachable(&self, reachable: bool) {
        let mut life = self.life();
        life.reachable = reachable;
        for engine in &life.engine_ids {
            self.fabric().join(engine.clone(), self.port, reachable);
        }
    }

    /// Removes the engine from the network, and ends its transfers.
    pub(crate) fn leave(&self) {
        let life = self.life();
        life.over.cancel();
        for engine in &life.engine_ids {
            self.fabric().leave(engine);
        }
    }

    /// Returns the numbers of prefill legs, decode legs, and requests with the wrong role.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.prefill_legs, &self.decode_legs, &self.role_violations]
            .map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn config(&self) -> &PdConfig {
        &self.config
    }

    pub(super) fn fabric(&self) -> &Fabric {
        &self.config.fabric
    }

    /// Returns the port of its HTTP service.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of its bootstrap server, if it has one.
    pub(crate) fn bootstrap(&self) -> Option<SocketAddr> {
        self.bootstrap
    }

    /// Returns one id per data-parallel rank; sglang has its bootstrap address instead.
    pub(crate) fn engine_ids(&self) -> Vec<String> {
        self.life().engine_ids.clone()
    }

    fn engine_id(&self, rank: u16) -> String {
        self.life()
            .engine_ids
            .get(usize::from(rank))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns a new id for a kept or received sequence.
    pub(super) fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Spawns a task that ends with this life of the engine.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.life().over.clone();
        self.tasks.spawn(async move {
            over.run_until_cancelled(task).await;
        });
    }

    pub(super) async fn command(&self, command: Command) {
        // Fails only if the engine has stopped.
        let _ = self.commands.send(command).await;
    }

    /// Converts engine time to real time.
    pub(super) fn real(&self, time: Duration) -> Duration {
        let seconds = time.as_secs_f64() / self.time_scale;
        Duration::try_from_secs_f64(seconds).map_or(LONGEST, |time| time.min(LONGEST))
    }

    /// Returns the time to move these tokens, in real time.
    pub(super) fn transfer_time(&self, tokens: usize) -> Duration {
        self.real(transfer_time(self.config.transfer_ms_per_1k_tokens, tokens))
    }

    fn life(&self) -> MutexGuard<'_, EngineLife> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
