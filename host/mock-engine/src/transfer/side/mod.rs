//! One engine as a half of disaggregated pairs: who it is on the network, and what it has done there. Which leg a
//! request is stands in `side/legs.rs`.

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

/// Longest wait in real time, so that no scale overflows a clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// One engine's half.
#[derive(Debug)]
pub(crate) struct Side {
    config: PdConfig,
    time_scale: f64,
    block_size: usize,
    ranks: u16,
    port: u16,
    bootstrap: Option<SocketAddr>,
    commands: mpsc::Sender<Command>,
    tasks: TaskTracker,
    stop: CancellationToken,
    life: Mutex<Life>,
    ids: AtomicU64,
    prefill_legs: AtomicU64,
    decode_legs: AtomicU64,
    role_violations: AtomicU64,
}

/// From one start of the engine to the next.
#[derive(Debug)]
struct Life {
    /// One for each data-parallel rank.
    engine_ids: Vec<String>,
    reachable: bool,
    /// Ends the transfers of this life.
    over: CancellationToken,
}

impl Side {
    /// An engine with no identity yet; see [`Self::begin_life`].
    pub(crate) fn new(
        mock: &MockConfig,
        config: PdConfig,
        (port, bootstrap): (u16, Option<SocketAddr>),
        commands: mpsc::Sender<Command>,
        (tasks, stop): (TaskTracker, CancellationToken),
    ) -> Arc<Self> {
        let life = Life {
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

    /// The engine starts, or starts over: what it had is gone and its ids are new.
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

    /// Whether others can reach the engine from now on.
    pub(crate) fn set_reachable(&self, reachable: bool) {
        let mut life = self.life();
        life.reachable = reachable;
        for engine in &life.engine_ids {
            self.fabric().join(engine.clone(), self.port, reachable);
        }
    }

    /// The engine is off the network, and its transfers are over.
    pub(crate) fn leave(&self) {
        let life = self.life();
        life.over.cancel();
        for engine in &life.engine_ids {
            self.fabric().leave(engine);
        }
    }

    /// Legs of either role that came in, and requests with the wrong one.
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

    /// Where it serves requests.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where its bootstrap server is, if it has one.
    pub(crate) fn bootstrap(&self) -> Option<SocketAddr> {
        self.bootstrap
    }

    /// One for each data-parallel rank; sglang has its bootstrap address instead.
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

    /// Different for everything that is kept or received.
    pub(super) fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs until it is over, or this life of the engine is.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let over = self.life().over.clone();
        self.tasks.spawn(async move {
            over.run_until_cancelled(task).await;
        });
    }

    pub(super) async fn command(&self, command: Command) {
        // Fails only when the engine has stopped.
        let _ = self.commands.send(command).await;
    }

    /// Engine time as real time.
    pub(super) fn real(&self, time: Duration) -> Duration {
        let seconds = time.as_secs_f64() / self.time_scale;
        Duration::try_from_secs_f64(seconds).map_or(LONGEST, |time| time.min(LONGEST))
    }

    /// What moving so many tokens takes, in real time.
    pub(super) fn transfer_time(&self, tokens: usize) -> Duration {
        self.real(transfer_time(self.config.transfer_ms_per_1k_tokens, tokens))
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
