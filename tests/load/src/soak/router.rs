//! The router as a process: its file, its folder of policies, its metrics and its memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::Options;
use super::client;
use super::fleet::{Edition, Fleet};
use crate::loopback::Loopback;
use crate::proxy_cpu::processor::field_kib;
use crate::proxy_cpu::{Running, free_port};

/// Time limit of the start.
const START: Duration = Duration::from_secs(30);

/// Page that a router serves once it has started.
pub(super) struct Ready {
    pub(super) target: Loopback,
    pub(super) page: &'static str,
    pub(super) within: Duration,
}

/// Starts a router with the `conductor.toml` of a folder on one core, and waits until it answers.
pub(super) async fn start_process(
    conductor: &Path,
    core: usize,
    folder: &Path,
    ready: Ready,
) -> Result<Running> {
    let program = conductor.canonicalize().with_context(|| {
        format!(
            "`{}`: `cargo build --release -p conductor` builds it",
            conductor.display()
        )
    })?;
    let mut command = Command::new(program);
    command.args(["--config", "conductor.toml"]).current_dir(folder);
    let log = folder.join("router.log");
    let mut process = Running::start(&[core], "conductor", &mut command, log, false)?;
    let deadline = Instant::now() + ready.within;
    while client::get(ready.target, ready.page).await.is_err() {
        process.ensure_alive()?;
        anyhow::ensure!(Instant::now() < deadline, "not ready: {}", process.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(process)
}

pub(super) struct Router {
    folder: TempDir,
    components: Vec<PathBuf>,
    process: Running,
    pub(super) target: Loopback,
    admin: Loopback,
}

impl Router {
    /// Starts the router over the whole fleet and waits until it answers.
    pub(super) async fn start(options: &Options, fleet: &Fleet) -> Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
        let components = components(&options.policies)?;
        let (target, admin) = (Loopback::port(free_port()?), Loopback::port(free_port()?));
        fs::create_dir(folder.path().join("policies")).context("failed to create the folder of policies")?;
        swap(folder.path(), &components, 0)?;
        save(folder.path(), &fleet.config(&fleet.whole(), target, admin))?;
        let process = start_process(
            &options.conductor,
            options.router_core,
            folder.path(),
            Ready {
                target,
                page: "/metrics",
                within: START,
            },
        )
        .await?;
        Ok(Self {
            folder,
            components,
            process,
            target,
            admin,
        })
    }

    /// Writes another version of its file.
    pub(super) fn edit(&self, fleet: &Fleet, edition: &Edition) -> Result<()> {
        save(
            self.folder.path(),
            &fleet.config(edition, self.target, self.admin),
        )
    }

    /// Writes an invalid version.
    pub(super) fn spoil(&self) -> Result<()> {
        save(self.folder.path(), "[server\nlisten = 7\n")
    }

    /// Sets another component as the policy `swapped`.
    pub(super) fn swap(&self, number: usize) -> Result<()> {
        swap(self.folder.path(), &self.components, number)
    }

    /// Fails if the process has ended, with the end of its log.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        self.process.ensure_alive()
    }

    pub(super) fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Returns the metrics by name and labels.
    pub(super) async fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let page = client::get(self.target, "/metrics").await?;
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(line)
            .collect())
    }

    /// Returns resident and proportional memory, in KiB.
    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let file = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read `{file}`"))?;
        let field = |name| field_kib(&text, name).with_context(|| format!("`{file}` has no {name}"));
        Ok((field("Rss:")?, field("Pss:")?))
    }

    /// Returns its number of file descriptors.
    pub(super) fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.id())).map_or(0, Iterator::count)
    }
}

/// Returns the components that serve whole requests without a parameter.
fn components(folder: &Path) -> Result<Vec<PathBuf>> {
    let names = ["round-robin", "load-weighted", "cache-aware", "session-affinity"];
    let files: Vec<_> = names
        .iter()
        .map(|name| folder.join(name).with_extension("wasm"))
        .filter(|file| file.is_file())
        .collect();
    anyhow::ensure!(
        !files.is_empty(),
        "`{}` has no policies: see --policies",
        folder.display()
    );
    Ok(files)
}

/// Writes a file atomically.
fn save(folder: &Path, text: &str) -> Result<()> {
    let (new, file) = (folder.join("conductor.new"), folder.join("conductor.toml"));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &file))
        .context("failed to write the router's file")
}

fn swap(folder: &Path, components: &[PathBuf], number: usize) -> Result<()> {
    let source = &components[number % components.len()];
    let (new, file) = (
        folder.join("swapped.new"),
        folder.join("policies").join("swapped.wasm"),
    );
    fs::copy(source, &new)
        .and_then(|_| fs::rename(&new, &file))
        .with_context(|| format!("failed to copy `{}`", source.display()))
}
