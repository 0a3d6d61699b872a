//! The router's program: runs of its commands, and its process.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::client::Client;

/// Longest start of a process.
const LONGEST_START: Duration = Duration::from_mins(1);

/// Result of a run of the program.
#[derive(Debug)]
pub struct ProgramRun {
    /// Exit code.
    pub code: i32,
    /// Text of the standard output.
    pub stdout: String,
    /// Text of the standard error.
    pub stderr: String,
}

impl ProgramRun {
    /// Returns the result of a run that has ended.
    ///
    /// # Panics
    /// If a signal ended it, or its output is not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a command beside the servers of this process.
    ///
    /// # Panics
    /// As [`ProgramRun::of`], or if it cannot be started.
    pub async fn beside(mut command: Command) -> Self {
        let output = tokio::task::spawn_blocking(move || command.output());
        Self::of(output.await.expect("no panic").expect("it runs"))
    }

    /// Returns the standard output of a run without a failure.
    ///
    /// # Panics
    /// If it failed.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Returns the standard output of a run without a failure as JSON.
    ///
    /// # Panics
    /// If it failed, or this is not JSON.
    #[must_use]
    #[track_caller]
    pub fn good_json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        self.json()
    }

    /// Returns the standard output as JSON, whatever the exit code.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        let json = serde_json::from_str(&self.stdout);
        json.map_err(|error| format!("{error}: {self:?}")).expect("JSON")
    }
}

/// Process that is killed when dropped.
#[derive(Debug)]
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Process of a router, which logs JSON. Killed when dropped.
#[derive(Debug)]
pub struct RouterProcess {
    _child: KilledChild,
    /// Client of the listener for clients.
    pub client: Client,
    /// Client of the admin listener, unless it is off.
    pub admin: Option<Client>,
}

impl RouterProcess {
    /// Starts the program with a configuration, and waits until it prints its addresses.
    ///
    /// # Errors
    /// If it cannot be started, or prints none.
    pub async fn start(program: &str, config: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("--config").arg(config);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = KilledChild(command.spawn()?);
        let log = child.0.stderr.take().context("its log")?;
        let (ready, is_ready) = oneshot::channel();
        drop(std::thread::spawn(|| read_log(log, ready)));
        let addresses = tokio::time::timeout(LONGEST_START, is_ready).await;
        let (client, admin) = addresses.context("it starts in time")??;
        Ok(Self {
            _child: child,
            client: Client::new(client),
            admin: admin.map(Client::new),
        })
    }

    /// Kills the process by SIGKILL.
    pub fn kill(self) {
        drop(self);
    }
}

/// Reads the log to its end, so that the process never waits for it to be read. Sends the base URLs of the listeners.
fn read_log(log: impl Read, ready: oneshot::Sender<(String, Option<String>)>) {
    let mut ready = Some(ready);
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let text = |name: &str| line.get(name)?.as_str().filter(|address| *address != "off");
        let base = |address| format!("http://{address}");
        if text("message") == Some("ready")
            && let Some((listen, ready)) = text("listen").zip(ready.take())
        {
            drop(ready.send((base(listen), text("admin").map(base))));
        }
    }
}
