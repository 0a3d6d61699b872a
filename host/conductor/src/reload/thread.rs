//! Reload thread: waits for file changes, for commands, and for its interval.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use admin_pages::control::ReloadCommand;
use tokio_util::sync::CancellationToken;

use super::Reloader;
use super::pending::{PendingCommand, RoundResult, cause};
use super::watch::{FileWatch, POLL_EVERY};

/// Changes come in bursts (write, rename, chmod): wait until it has been quiet for this long...
const QUIET: Duration = Duration::from_millis(50);
/// ...but not longer than this.
const PATIENCE: Duration = Duration::from_millis(500);
/// The next look at a file that seemed half-written.
const UNSETTLED: Duration = Duration::from_millis(100);
/// Interval of a thread that does not look at files by itself.
const NEVER: Duration = Duration::from_secs(24 * 3600);

impl Reloader {
    /// Starts the thread, which ends soon after `stop` is cancelled. Returns the sender of its commands.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub(crate) fn spawn(
        self,
        stop: CancellationToken,
    ) -> io::Result<(SyncSender<ReloadCommand>, JoinHandle<()>)> {
        self.spawn_watching(stop, Some(POLL_EVERY))
    }

    /// Starts the thread without a watch of the files: a changed file causes no round.
    #[cfg(test)]
    pub(super) fn spawn_unwatched(
        self,
        stop: CancellationToken,
    ) -> io::Result<(SyncSender<ReloadCommand>, JoinHandle<()>)> {
        self.spawn_watching(stop, None)
    }

    /// Starts the thread. With `poll_every` it watches the files and looks at them in this interval.
    fn spawn_watching(
        mut self,
        stop: CancellationToken,
        poll_every: Option<Duration>,
    ) -> io::Result<(SyncSender<ReloadCommand>, JoinHandle<()>)> {
        let (commands, received) = sync_channel(16);
        self.library.load_behind(waker(&commands))?;
        self.live.sources.on_change(waker(&commands));
        if let Some(agreed) = &self.agreed {
            agreed.on_change(waker(&commands));
        }
        // Sources may have answered before.
        waker(&commands)();
        let watched = waker(&commands);
        let thread = std::thread::Builder::new().name("reload".into()).spawn(move || {
            let watch = poll_every.map(|_| FileWatch::start(watched));
            self.run(watch, poll_every.unwrap_or(NEVER), &received, &stop);
        })?;
        Ok((commands, thread))
    }

    fn run(
        mut self,
        mut watch: Option<FileWatch>,
        poll_every: Duration,
        received: &Receiver<ReloadCommand>,
        stop: &CancellationToken,
    ) {
        let mut pause = poll_every;
        let mut waiting = Vec::new();
        while !stop.is_cancelled() {
            if let Some(watch) = &mut watch {
                watch.set(&self.paths());
            }
            // A timeout runs a round too: not every change is notified.
            let first = received.recv_timeout(pause).ok();
            let requested = collect(first, received, stop);
            if stop.is_cancelled() {
                return;
            }
            // Once for each request, not for each round that it waits for.
            if requested.iter().any(PendingCommand::is_reload) {
                self.library.retry_compilers();
            }
            waiting.extend(requested);
            self.journal.begin(cause(&waiting), None);
            let (outcome, seen) = match waiting.iter().any(PendingCommand::is_reload) {
                true => self.reload(),
                false => self.round(Some(SystemTime::now())),
            };
            pause = if seen.is_unsettled { UNSETTLED } else { poll_every };
            let round = RoundResult { outcome, seen };
            let requested = std::mem::take(&mut waiting).into_iter();
            waiting = requested
                .filter_map(|command| self.answer(command, &round))
                .collect();
        }
    }
}

/// Returns a function that makes the thread run a round.
fn waker(commands: &SyncSender<ReloadCommand>) -> impl Fn() + Send + Sync + use<> {
    let commands = commands.clone();
    move || {
        // A full channel has a command already.
        let _ = commands.try_send(ReloadCommand::Changed);
    }
}

/// Waits for a pause in the changes, or the end, and returns the commands of the meantime that are to be answered.
fn collect(
    first: Option<ReloadCommand>,
    received: &Receiver<ReloadCommand>,
    stop: &CancellationToken,
) -> Vec<PendingCommand> {
    let started = Instant::now();
    let mut requested = Vec::new();
    let mut next = first;
    while let Some(command) = next {
        requested.extend(PendingCommand::of(command));
        next = if started.elapsed() < PATIENCE && !stop.is_cancelled() {
            received.recv_timeout(QUIET).ok()
        } else {
            None
        };
    }
    requested
}
