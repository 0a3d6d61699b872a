//! Processes that the bench starts: pinned, logged to a file, and gone when their owner is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::affinity;

/// Grace period after SIGTERM before a process is killed. One of the peers always takes five seconds.
const GRACE: Duration = Duration::from_secs(8);

/// A running process; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts `command` on `cores`; its standard error, and where `read_output` is false its output, go to `log`.
    pub(crate) fn start(
        cores: &[usize],
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
        let child = affinity::spawn_on(cores, command.stdin(Stdio::null()).stdout(output).stderr(file))?;
        Ok(Self {
            child,
            name: name.to_owned(),
            log,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the first `count` lines that the process prints.
    pub(crate) fn printed_lines(&mut self, count: usize) -> Result<Vec<String>> {
        let output = self
            .child
            .stdout
            .take()
            .context("the output of this process is not read")?;
        let lines = BufReader::new(output).lines().take(count);
        let lines: Vec<_> = lines.collect::<Result<_, _>>().context("failed to read a line")?;
        anyhow::ensure!(
            lines.len() == count,
            "`{}` ended early: {}",
            self.name,
            self.log_tail()
        );
        Ok(lines)
    }

    /// Stops the process; returns the duration.
    pub(crate) fn end(mut self) -> Result<Duration> {
        let sent = Instant::now();
        self.terminate();
        anyhow::ensure!(
            matches!(self.child.try_wait(), Ok(Some(_))),
            "`{}` had not ended {GRACE:?} after SIGTERM",
            self.name
        );
        Ok(sent.elapsed())
    }

    /// Sends SIGTERM and waits for the end: nginx's master then ends its worker, which it would leave behind when
    /// killed.
    fn terminate(&mut self) {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(id, Signal::TERM);
        }
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
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

    /// Returns the end of what the process logged.
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
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
