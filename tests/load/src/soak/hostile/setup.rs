//! The router under attack: a process with a file of its own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::{sends_to, worker_toml};
use tempfile::TempDir;

use super::HostileOptions;
use super::feeds::Feeds;
use super::worker::HostileWorkers;
use crate::loopback::Loopback;
use crate::proxy_cpu::processor::field_kib;
use crate::proxy_cpu::{Running, free_port};
use crate::soak::client;
use crate::soak::fleet::Fleet;
use crate::soak::router::{Ready, start_process};
use bench_vocabulary as vocabulary;

/// Time limit of the start: a debug build compiles its policies slowly.
const START: Duration = Duration::from_secs(120);
/// API key of ordinary clients and attackers.
pub(super) const ORDINARY_KEY: &str = "ordinary-key";
pub(super) const HOSTILE_KEY: &str = "hostile-key";
/// Their SHA-256.
const ORDINARY_SHA: &str = "6facb710e7085c7a6d2d15d1b1b30ae7747d1329a2a29e9a6aeb791de8536915";
const HOSTILE_SHA: &str = "3563c2b59f3c62e187bb7b6e0fac1a73e2c0900ffc7df2c4417e30b9d75e4949";
/// The policy that attackers' requests are placed by, and the file that is exchanged.
pub(super) const POLICY: &str = "planted";
/// Metrics of the router's defences.
const NOTABLE: [&str; 9] = [
    "edge_turned_away",
    "memory_",
    "kv_feed",
    "tokenized",
    "policy_faults",
    "policy_compil",
    "client_refusals",
    "body_bytes",
    "unfinished",
];

pub(super) struct Router {
    folder: TempDir,
    process: Running,
    pub(super) target: Loopback,
    pub(super) admin: Loopback,
    pub(super) indexer: Loopback,
}

impl Router {
    /// Starts the router over both fleets and waits until it answers.
    pub(super) async fn start(
        options: &HostileOptions,
        fleet: &Fleet,
        hostile: &HostileWorkers,
        feeds: &Feeds,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
        let [target, admin, indexer] = [free_port()?, free_port()?, free_port()?].map(Loopback::port);
        vocabulary::write_tokenizer(&folder.path().join("tokenizer"))?;
        fs::create_dir(folder.path().join("policies")).context("failed to create the folder of policies")?;
        place(folder.path(), POLICY, &sends_to(0, 1)?)?;
        let mut text = file(options, [target, admin, indexer]);
        for (number, engine) in fleet.engines.iter().enumerate() {
            text += &worker_toml(number, engine);
        }
        for (number, (url, feed)) in hostile.urls().iter().zip(feeds.endpoints()).enumerate() {
            text += &format!(
                "[[pools.hostile.workers]]\nname = \"h{number}\"\nurl = \"{url}\"\nkv-events = \"{feed}\"\n\n"
            );
        }
        text += &format!(
            "[[routes]]\nmatch = {{ model = [\"hostile\"] }}\npool = \"hostile\"\npolicy = \"{POLICY}\"\n\n"
        );
        text += "[[routes]]\npool = \"chat\"\npolicy = \"cache-aware\"\n";
        fs::write(folder.path().join("conductor.toml"), text).context("failed to write the router's file")?;
        let process = start_process(
            &options.conductor,
            options.router_core,
            folder.path(),
            Ready {
                target,
                page: "/readyz",
                within: START,
            },
        )
        .await?;
        Ok(Self {
            folder,
            process,
            target,
            admin,
            indexer,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Fails if the process has ended, with the end of its log.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        self.process.ensure_alive()
    }

    pub(super) fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Returns the peak of resident memory, in bytes.
    pub(super) fn peak(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read `{file}`"))?;
        let peak = field_kib(&text, "VmHWM:").with_context(|| format!("`{file}` has no VmHWM"))?;
        Ok(peak << 10)
    }

    /// Returns the metrics of its defences that are not 0.
    pub(super) async fn metrics(&self) -> Result<String> {
        let page = client::get(self.admin, "/metrics").await?;
        let is_notable = |line: &&str| {
            let is_known = NOTABLE.iter().any(|word| line.contains(word));
            is_known && !line.starts_with('#') && !line.ends_with(" 0") && !line.ends_with(" 0.0")
        };
        let lines: Vec<&str> = page.lines().filter(is_notable).collect();
        Ok(format!("Counters of the router:\n  {}\n", lines.join("\n  ")))
    }
}

/// Returns the file without its workers and routes. What bodies may take is a quarter of the memory.
fn file(options: &HostileOptions, [clients, admin, indexer]: [Loopback; 3]) -> String {
    let [clients, admin, indexer] = [clients, admin, indexer].map(Loopback::address);
    let memory = options.memory_limit;
    format!(
        "policy-dir = \"policies\"\n\n\
         [server]\nlisten = \"{clients}\"\nadmin-listen = \"{admin}\"\nmemory-limit = \"{memory}MiB\"\nbuffered-bodies = \"{bodies}MiB\"\n\
         max-connections = 2048\nconnections-per-address = 384\nbody-timeout = \"10s\"\nhead-timeout = \"5s\"\nidle-timeout = \"10s\"\n\n\
         [indexer]\nlisten = \"{indexer}\"\n\n[log]\nlevel = \"error\"\n\n\
         [clients.ordinary]\nkey-sha256 = [\"{ORDINARY_SHA}\"]\n\n\
         [clients.hostile]\nkey-sha256 = [\"{HOSTILE_SHA}\"]\ntokens-per-minute = 1_000_000_000\n\n\
         [models.every]\nnames = [\"*\"]\ntokenizer = \"tokenizer\"\n\n",
        bodies = memory / 4,
    )
}

/// Writes a file of the policy folder atomically.
pub(super) fn place(folder: &Path, policy: &str, component: &[u8]) -> Result<()> {
    let (new, file) = (
        folder.join("policy.new"),
        folder.join("policies").join(policy).with_extension("wasm"),
    );
    fs::write(&new, component)
        .and_then(|()| fs::rename(&new, &file))
        .context("failed to write a policy")
}
