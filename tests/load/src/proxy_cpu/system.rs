//! The systems that are compared. A new peer is one more variant: a name, a prompt form and a command.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::child::Running;
use super::conductor::{self, Setup};
use super::nginx;
use crate::generate::{self, Plan, PromptForm};
use crate::loopback::Loopback;

/// How long a system may take until it answers its first request.
const START: Duration = Duration::from_secs(20);

/// What stands between the generator and the backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// Nothing: the generator talks to the first backend, and the CPU is the backends' own.
    Direct,
    /// nginx, one worker.
    Nginx,
    /// Conductor with round-robin.
    RoundRobin,
    /// Conductor with cache-aware, without tokens.
    CacheAware,
    /// Conductor with cache-aware and prompts of token ids.
    CacheAwareIds,
    /// Conductor with cache-aware and tokens from a worker's `/tokenize`.
    CacheAwareTokenize,
    /// Conductor with every request split between a prefill and a decode worker (nixl), by round-robin.
    PairRoundRobin,
    /// The same, by pd-pairing.
    PairPairing,
}

/// Where a system is started.
pub(super) struct Site<'a> {
    /// Conductor's binary.
    pub(super) conductor: &'a Path,
    /// An empty folder for its files.
    pub(super) folder: &'a Path,
    /// The core it is pinned to.
    pub(super) core: usize,
    /// Where the backends listen.
    pub(super) backends: &'a [SocketAddr],
}

/// A system that answers.
pub(super) struct Ready {
    /// Where load is sent.
    pub(super) target: Loopback,
    /// Its process; none without a proxy.
    pub(super) process: Option<Running>,
}

impl System {
    /// All of them, in the order of the tables.
    pub(super) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Nginx,
        Self::RoundRobin,
        Self::CacheAware,
        Self::CacheAwareIds,
        Self::CacheAwareTokenize,
        Self::PairRoundRobin,
        Self::PairPairing,
    ];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::RoundRobin => "conductor round-robin",
            Self::CacheAware => "conductor cache-aware, no tokens",
            Self::CacheAwareIds => "conductor cache-aware, token ids",
            Self::CacheAwareTokenize => "conductor cache-aware, /tokenize",
            Self::PairRoundRobin => "conductor pairs, round-robin",
            Self::PairPairing => "conductor pairs, pd-pairing",
        }
    }

    /// Conductor's set-up, where this is Conductor.
    fn setup(self) -> Option<Setup> {
        match self {
            Self::Direct | Self::Nginx => None,
            Self::RoundRobin => Some(Setup::RoundRobin),
            Self::CacheAware => Some(Setup::CacheAwareBlind),
            Self::CacheAwareIds => Some(Setup::CacheAwareIds),
            Self::CacheAwareTokenize => Some(Setup::CacheAwareTokenize),
            Self::PairRoundRobin => Some(Setup::PairRoundRobin),
            Self::PairPairing => Some(Setup::PairPairing),
        }
    }

    /// How its prompts are given.
    pub(super) fn prompt(self) -> PromptForm {
        self.setup().map_or(PromptForm::Chat, Setup::prompt)
    }

    /// Why it cannot be run here, where it cannot.
    pub(super) fn missing(self, conductor: &Path) -> Option<String> {
        match self {
            Self::Direct => None,
            Self::Nginx => nginx::find()
                .is_none()
                .then(|| "nginx is not installed (Debian: nginx-light)".to_owned()),
            _ => (!conductor.is_file()).then(|| {
                format!(
                    "`{}` does not exist: `cargo build --release -p conductor` builds it",
                    conductor.display()
                )
            }),
        }
    }

    /// Starts it and waits until it answers a request.
    pub(super) fn start(self, site: &Site<'_>, stop: impl Fn() -> bool) -> Result<Ready> {
        if self == Self::Direct {
            let backend = site.backends.first().context("there are no backends")?;
            return Ok(Ready {
                target: Loopback::port(backend.port()),
                process: None,
            });
        }
        let target = Loopback::port(free_port()?);
        let mut command = match self.setup() {
            Some(setup) => conductor::command(
                site.conductor,
                setup,
                site.folder,
                target.address(),
                site.backends,
            )?,
            None => {
                let program = nginx::find().context("nginx is not installed")?;
                nginx::command(&program, site.folder, target.address(), site.backends)?
            }
        };
        let log = site.folder.join("output.log");
        let mut process = Running::start(site.core, self.name(), &mut command, log, false)?;
        wait_for_answer(&mut process, target, self.prompt(), stop)?;
        Ok(Ready {
            target,
            process: Some(process),
        })
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to find a free port")?;
    Ok(listener
        .local_addr()
        .context("failed to find a free port")?
        .port())
}

fn wait_for_answer(
    process: &mut Running,
    target: Loopback,
    prompt: PromptForm,
    stop: impl Fn() -> bool,
) -> Result<()> {
    let probe = Plan {
        target,
        prompt,
        body_bytes: 0,
        stream_tokens: None,
        connections: 1,
        rate: None,
        warm_up: Duration::ZERO,
        window: Duration::from_millis(50),
        patience: Duration::from_secs(1),
    };
    let deadline = Instant::now() + START;
    loop {
        process.ensure_alive()?;
        let report = generate::run(&probe, |_| Ok(()), &stop)?;
        if report.requests > 0 {
            return Ok(());
        }
        anyhow::ensure!(!stop(), "interrupted");
        anyhow::ensure!(
            Instant::now() < deadline,
            "no request was answered with 200 within {START:?} ({:?}); the end of its log: {}",
            report.errors,
            process.log_tail(),
        );
    }
}
