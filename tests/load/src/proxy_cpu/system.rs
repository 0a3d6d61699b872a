//! The systems that are compared. A new peer is one more variant: a name, a prompt form and a command.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::child::Running;
use super::conductor::{self, Setup, Tokens};
use super::free_port;
use super::peers::{Peer, PeerSetup};
use super::probe;
use super::{haproxy, nginx};
use crate::generate::PromptForm;
use crate::loopback::Loopback;

/// Time limit until a system answers its first request and Conductor's index is filled.
const START: Duration = Duration::from_secs(30);

/// System between the generator and the backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// Nothing: the generator talks to the first backend, and the CPU is the backends' own.
    Direct,
    /// nginx, one worker.
    Nginx,
    /// HAProxy, one thread.
    Haproxy,
    /// The least proxy of hyper, one thread: the floor of a router that is built on it.
    BareHyper,
    /// vllm-router, round robin.
    VllmRr,
    /// vllm-router, round robin, logging at level info.
    VllmRrInfo,
    /// vllm-router, cache-aware.
    VllmCache,
    /// sglang-router, round robin.
    SglangRr,
    /// sglang-router, cache-aware.
    SglangCache,
    /// smg, round robin.
    SmgRr,
    /// smg, cache-aware.
    SmgCache,
    /// Conductor with round-robin.
    RoundRobin,
    /// Conductor with cache-aware, without tokens.
    CacheAware,
    /// Conductor with cache-aware and prompts of token ids, the index filled and changing.
    CacheAwareIds,
    /// Conductor with cache-aware and a tokenizer of its own, the index filled and changing.
    CacheAwareLive,
    /// Cache-aware with live events, logging at level warn.
    CacheAwareLiveWarn,
    /// Conductor with its default policy and a tokenizer of its own, the index filled and changing.
    DefaultLive,
    /// Conductor with cache-aware and tokens from a worker's `/tokenize`.
    CacheAwareTokenize,
    /// Conductor with every request split between a prefill and a decode worker (nixl), by round-robin.
    PairRoundRobin,
    /// Split requests, placed by pd-pairing.
    PairPairing,
}

/// Environment of a system.
pub(super) struct Site<'a> {
    /// Conductor's binary.
    pub(super) conductor: &'a Path,
    /// Folder of programs, searched before PATH.
    pub(super) peers: Option<&'a Path>,
    /// An empty folder for its files.
    pub(super) folder: &'a Path,
    /// A folder with a tokenizer.
    pub(super) tokenizer: &'a Path,
    /// The cores it is pinned to.
    pub(super) cores: &'a [usize],
    /// Addresses of the backends.
    pub(super) backends: &'a [SocketAddr],
    /// Endpoints of their KV events.
    pub(super) kv_events: &'a [String],
    /// Number of blocks in those events.
    pub(super) blocks: u64,
}

/// A running system.
pub(super) struct Ready {
    /// Target of the load.
    pub(super) target: Loopback,
    /// Process; none without a proxy.
    pub(super) process: Option<Running>,
    /// From its start to its first answer.
    pub(super) took: Duration,
}

/// Way to run a system.
enum Kind {
    Direct,
    Nginx,
    Haproxy,
    BareHyper,
    Peer(PeerSetup),
    Conductor(Setup),
}

fn peer(peer: Peer, policy: &'static str) -> Kind {
    Kind::Peer(PeerSetup {
        peer,
        policy,
        verbose: false,
    })
}

fn conductor(policy: &'static str, tokens: Tokens) -> Setup {
    Setup {
        policy,
        tokens,
        splits: false,
        quiet: false,
    }
}

impl System {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 20] = [
        Self::Direct,
        Self::Nginx,
        Self::Haproxy,
        Self::BareHyper,
        Self::VllmRr,
        Self::VllmRrInfo,
        Self::VllmCache,
        Self::SglangRr,
        Self::SglangCache,
        Self::SmgRr,
        Self::SmgCache,
        Self::RoundRobin,
        Self::CacheAware,
        Self::CacheAwareIds,
        Self::CacheAwareLive,
        Self::CacheAwareLiveWarn,
        Self::DefaultLive,
        Self::CacheAwareTokenize,
        Self::PairRoundRobin,
        Self::PairPairing,
    ];

    /// Peers that choose by turns.
    pub(crate) const PEERS: [Self; 3] = [Self::VllmRr, Self::SglangRr, Self::SmgRr];

    /// Returns its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::BareHyper => "hyper alone",
            Self::VllmRr => "vllm-router round robin",
            Self::VllmRrInfo => "vllm-router round robin, log info",
            Self::VllmCache => "vllm-router cache-aware",
            Self::SglangRr => "sglang-router round robin",
            Self::SglangCache => "sglang-router cache-aware",
            Self::SmgRr => "smg round robin",
            Self::SmgCache => "smg cache-aware",
            Self::RoundRobin => "conductor round-robin",
            Self::CacheAware => "conductor cache-aware, no tokens",
            Self::CacheAwareIds => "conductor cache-aware, token ids, index live",
            Self::CacheAwareLive => "conductor cache-aware, tokenized, index live",
            Self::CacheAwareLiveWarn => "conductor cache-aware, tokenized, index live, log warn",
            Self::DefaultLive => "conductor, default policy, tokenized, index live",
            Self::CacheAwareTokenize => "conductor cache-aware, /tokenize",
            Self::PairRoundRobin => "conductor pairs, round-robin",
            Self::PairPairing => "conductor pairs, pd-pairing",
        }
    }

    fn kind(self) -> Kind {
        let live = conductor("cache-aware", Tokens::Own);
        let pair = |policy| Setup {
            splits: true,
            ..conductor(policy, Tokens::None)
        };
        let setup = match self {
            Self::Direct => return Kind::Direct,
            Self::Nginx => return Kind::Nginx,
            Self::Haproxy => return Kind::Haproxy,
            Self::BareHyper => return Kind::BareHyper,
            Self::VllmRr => return peer(Peer::Vllm, "round_robin"),
            Self::VllmRrInfo => {
                return Kind::Peer(PeerSetup {
                    peer: Peer::Vllm,
                    policy: "round_robin",
                    verbose: true,
                });
            }
            Self::VllmCache => return peer(Peer::Vllm, "cache_aware"),
            Self::SglangRr => return peer(Peer::Sglang, "round_robin"),
            Self::SglangCache => return peer(Peer::Sglang, "cache_aware"),
            Self::SmgRr => return peer(Peer::Smg, "round_robin"),
            Self::SmgCache => return peer(Peer::Smg, "cache_aware"),
            Self::RoundRobin => conductor("round-robin", Tokens::None),
            Self::CacheAware => conductor("cache-aware", Tokens::None),
            Self::CacheAwareIds => conductor("cache-aware", Tokens::Given),
            Self::CacheAwareLive => live,
            Self::CacheAwareLiveWarn => Setup { quiet: true, ..live },
            Self::DefaultLive => conductor("ttft-queue", Tokens::Own),
            Self::CacheAwareTokenize => conductor("cache-aware", Tokens::Worker),
            Self::PairRoundRobin => pair("round-robin"),
            Self::PairPairing => pair("pd-pairing"),
        };
        Kind::Conductor(setup)
    }

    /// Returns the form of its prompts.
    pub(super) fn prompt(self) -> PromptForm {
        match self.kind() {
            Kind::Conductor(setup) => setup.prompt(),
            _ => PromptForm::Chat,
        }
    }

    /// Returns the reason why it cannot be run here, if there is one.
    pub(super) fn missing(self, conductor: &Path, peers: Option<&Path>) -> Option<String> {
        let lacks = |program: &str, hint: &str| {
            find(program, peers)
                .is_none()
                .then(|| format!("{program} is not installed ({hint})"))
        };
        match self.kind() {
            Kind::Direct | Kind::BareHyper => None,
            Kind::Nginx => lacks("nginx", "Debian: nginx-light"),
            Kind::Haproxy => lacks("haproxy", "Debian: haproxy"),
            Kind::Peer(setup) => lacks(
                setup.program(),
                &format!("PyPI: {}; see --peers", setup.package()),
            ),
            Kind::Conductor(_) => (!conductor.is_file()).then(|| {
                format!(
                    "`{}` does not exist: `cargo build --release -p conductor` builds it",
                    conductor.display()
                )
            }),
        }
    }

    /// Starts it, and waits until it answers a request and has the backends' contents if required.
    pub(super) fn start(self, site: &Site<'_>, stop: impl Fn() -> bool) -> Result<Ready> {
        let port = match (self, site.backends.first()) {
            (Self::Direct, Some(backend)) => backend.port(),
            (Self::Direct, None) => anyhow::bail!("there are no backends"),
            _ => free_port()?,
        };
        let target = Loopback::port(port);
        let Some(mut command) = self.command(site, target.address())? else {
            return Ok(Ready {
                target,
                process: None,
                took: Duration::ZERO,
            });
        };
        let log = site.folder.join("output.log");
        let started = Instant::now();
        let mut process = Running::start(site.cores, self.name(), &mut command, log, false)?;
        let mut ready = |what: &str, is_there: &dyn Fn() -> Result<(), String>| {
            let deadline = Instant::now() + START;
            while let Err(found) = is_there() {
                process.ensure_alive()?;
                anyhow::ensure!(!stop(), "interrupted");
                anyhow::ensure!(
                    Instant::now() < deadline,
                    "{what} within {START:?} ({found}); the end of its log: {}",
                    process.log_tail()
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(started.elapsed())
        };
        let prompt = self.prompt();
        let took = ready("no request was answered with 200", &|| {
            probe::answers(target, prompt)
        })?;
        if let Kind::Conductor(setup) = self.kind()
            && setup.has_index()
        {
            ready("the index was not filled", &|| probe::holds(target, site.blocks))?;
            ready("nothing was found in the index", &|| {
                probe::matches(target, prompt)
            })?;
        }
        Ok(Ready {
            target,
            process: Some(process),
            took,
        })
    }

    fn command(self, site: &Site<'_>, listen: SocketAddr) -> Result<Option<Command>> {
        let program = |name| find(name, site.peers).with_context(|| format!("{name} is not installed"));
        let (folder, backends) = (site.folder, site.backends);
        match self.kind() {
            Kind::Direct => Ok(None),
            Kind::Nginx => nginx::command(&program("nginx")?, folder, listen, backends).map(Some),
            Kind::Haproxy => haproxy::command(&program("haproxy")?, folder, listen, backends).map(Some),
            Kind::BareHyper => bare_proxy(listen, backends).map(Some),
            Kind::Peer(setup) => setup
                .command(&program(setup.program())?, folder, listen, backends)
                .map(Some),
            Kind::Conductor(setup) => conductor::command(site, setup, listen).map(Some),
        }
    }
}

/// Returns the command of this program that serves as a proxy.
fn bare_proxy(listen: SocketAddr, backends: &[SocketAddr]) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("failed to find this program")?);
    command.arg("bare-proxy").arg(listen.to_string());
    command.args(backends.iter().map(SocketAddr::to_string));
    Ok(command)
}

/// Finds a program in `first`, in PATH, or in Debian's place for servers, which is not in every user's PATH.
fn find(program: &str, first: Option<&Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = first.map(Path::to_path_buf).into_iter();
    let folders = folders
        .chain(env::split_paths(&path))
        .chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .and_then(|file| std::path::absolute(file).ok())
}
