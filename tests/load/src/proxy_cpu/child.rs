//! Processes that the bench starts: pinned, logged to a file, and gone when their owner is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::affinity;

/// How long a process may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A running process; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts `command` on `core`; its standard error, and where `read_output` is false its output, go to `log`.
    pub(crate) fn start(
        core: usize,
        name: &str,
        command: &mut Command,
        log: PathBuf,
        read_output: bool,
    ) -> Result<Self> {
        let file = File::create(&log).with_context(|| format!("failed to create `{}`", log.display()))?;
        let copy = file.try_clone().context("failed to share a log file")?;
        let output = if read_output {
            Stdio::piped()
        } else {
            Stdio::from(copy)
        };
        let child = affinity::spawn_on(core, command.stdin(Stdio::null()).stdout(output).stderr(file))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The `http://ADDRESS` lines, `count` of them, that the process prints first.
    pub(crate) fn printed_addresses(&mut self, count: usize) -> Result<Vec<SocketAddr>> {
        let output = self
            .child
            .stdout
            .take()
            .context("the output of this process is not read")?;
        let mut addresses = Vec::with_capacity(count);
        for line in BufReader::new(output).lines().take(count) {
            let line = line.context("failed to read an address")?;
            let address = line
                .strip_prefix("http://")
                .and_then(|address| address.parse().ok());
            addresses.push(address.with_context(|| format!("`{line}` is not an address"))?);
        }
        anyhow::ensure!(
            addresses.len() == count,
            "`{}` ended early: {}",
            self.name,
            self.log_tail()
        );
        Ok(addresses)
    }

    /// Fails, with the end of its log, where the process has ended.
    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        match self
            .child
            .try_wait()
            .with_context(|| format!("failed to look at `{}`", self.name))?
        {
            None => Ok(()),
            Some(status) => anyhow::bail!("`{}` ended with {status}: {}", self.name, self.log_tail()),
        }
    }

    /// The end of what the process logged.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        if lines.is_empty() {
            "it logged nothing".to_owned()
        } else {
            lines.into_iter().rev().collect::<Vec<_>>().join("\n")
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first: nginx's master ends its worker then, and would leave it behind when killed.
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::TERM);
        }
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
