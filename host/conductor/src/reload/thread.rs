//! Reload thread: waits for file changes, for commands, and for its interval.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use admin_pages::control::{
    FileAnswer, FileEdit, InstanceAnswer, PolicyChange, RefusedChange, RefusedEdit, RefusedPolicyChange,
    RefusedRouteChange, ReloadAnswer, ReloadCommand, ReloadOutcome, RouteAnswer,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::plan::Seen;
use super::{Reloader, outcome};
use admin_views::ChangeCause;
use local_files::FolderWatch;
use observability::error_chain;
use policy_store::PolicyReport;
use runtime_overrides::InstanceChange;
use runtime_overrides::RouteChange;

/// Changes come in bursts (write, rename, chmod): wait until it has been quiet for this long...
const QUIET: Duration = Duration::from_millis(50);
/// ...but not longer than this.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval of looks without a notification: replaced folders and network file systems send none.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// The next look at a file that seemed half-written.
const UNSETTLED: Duration = Duration::from_millis(100);
/// A requested reload does not wait for files that still change after this long.
const MOST_UNSETTLED: Duration = Duration::from_secs(3);

impl Reloader {
    /// Starts the thread, which ends soon after `stop` is cancelled. Returns the sender of its commands.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub(crate) fn spawn(
        mut self,
        stop: CancellationToken,
    ) -> io::Result<(SyncSender<ReloadCommand>, JoinHandle<()>)> {
        let (commands, received) = sync_channel(16);
        let loaded = commands.clone();
        self.library.load_behind(move || {
            // A full channel has a command already.
            let _ = loaded.try_send(ReloadCommand::Changed);
        })?;
        let found = commands.clone();
        self.live.sources.on_change(move || {
            // A full channel has a command already.
            let _ = found.try_send(ReloadCommand::Changed);
        });
        if let Some(agreed) = &self.agreed {
            let decided = commands.clone();
            agreed.on_change(move || {
                // A full channel has a command already.
                let _ = decided.try_send(ReloadCommand::Changed);
            });
        }
        // Sources may have answered before.
        let _ = commands.try_send(ReloadCommand::Changed);
        let watched = commands.clone();
        let thread = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.run(watched, &received, &stop))?;
        Ok((commands, thread))
    }

    fn run(
        mut self,
        commands: SyncSender<ReloadCommand>,
        received: &Receiver<ReloadCommand>,
        stop: &CancellationToken,
    ) {
        let mut watch = Watch::start(commands);
        let mut pause = POLL_EVERY;
        let mut waiting = Vec::new();
        while !stop.is_cancelled() {
            watch.set(&self.paths());
            // Woken or not, there may be something to see.
            let first = received.recv_timeout(pause).ok();
            let requested = collect(first, received, stop).into_iter();
            let requested: Vec<_> = requested.filter_map(Waiting::of).collect();
            if stop.is_cancelled() {
                return;
            }
            // Once for each request, not for each look that it waits for.
            if requested.iter().any(Waiting::is_reload) {
                self.library.retry_compilers();
            }
            waiting.extend(requested);
            self.journal.begin(cause(&waiting), None);
            let (outcome, seen) = match waiting.iter().any(Waiting::is_reload) {
                true => self.reload(),
                false => self.round(Some(SystemTime::now())),
            };
            pause = if seen.is_unsettled { UNSETTLED } else { POLL_EVERY };
            let look = Look { outcome, seen };
            let requested = std::mem::take(&mut waiting).into_iter();
            waiting = requested
                .filter_map(|waiting| self.answer(waiting, &look))
                .collect();
        }
    }

    /// Runs a requested command after the look at the files. Returns it if it needs a policy that is being compiled.
    /// The requester may have left.
    fn answer(&mut self, waiting: Waiting, look: &Look) -> Option<Waiting> {
        // The look's cause, and the reason of an operator before, are not this command's.
        self.journal.begin(ChangeCause::Api, None);
        match waiting {
            Waiting::Reload {
                to,
                mut earlier,
                since,
            } => {
                if look.is_open(since) {
                    earlier.extend(look.outcome.swapped().iter().cloned());
                    return Some(Waiting::Reload { to, earlier, since });
                }
                let outcome = look.outcome.clone().with_earlier(earlier);
                self.report(to, outcome);
            }
            Waiting::Instance(change, to) => drop(to.send(self.change_instance(&change))),
            Waiting::Policy(change, to) => match self.change_policy(&change).transpose() {
                None => return Some(Waiting::Changed(change, to)),
                Some(done) => drop(to.send(done)),
            },
            Waiting::Changed(change, to) => match self.changed_policy(&change).transpose() {
                None => return Some(Waiting::Changed(change, to)),
                Some(done) => drop(to.send(done)),
            },
            Waiting::Route(change, to) => match self.change_route(&change).transpose() {
                None => return Some(Waiting::Route(change, to)),
                Some(done) => drop(to.send(done)),
            },
            Waiting::File(edit, to) => match self.edit_file(&edit).transpose() {
                None => return Some(Waiting::File(edit, to)),
                Some(done) => drop(to.send(done)),
            },
        }
        None
    }

    fn report(&self, to: ReloadRequester, outcome: ReloadOutcome) {
        match to {
            ReloadRequester::Signal(logged) => {
                outcome::log(&outcome, self.active.generation.0);
                let _ = logged.send(());
            }
            ReloadRequester::Page(to) => {
                let report = self.status.config();
                drop(to.send(ReloadAnswer { outcome, report }));
            }
        }
    }
}

/// Outcome of a look at the files.
struct Look {
    outcome: ReloadOutcome,
    seen: Seen,
}

impl Look {
    /// Returns whether a reload that was requested at `since` has no outcome yet: policies are compiled or may be
    /// half-written, and nothing else changed.
    fn is_open(&self, since: Instant) -> bool {
        let is_unsettled = self.seen.is_unsettled && since.elapsed() < MOST_UNSETTLED;
        self.outcome.is_open() && (self.seen.is_loading || is_unsettled)
    }
}

/// Requester of a reload.
enum ReloadRequester {
    /// SIGHUP. The outcome is logged, and then the receiver is notified.
    Signal(oneshot::Sender<()>),
    /// An admin page, which gets the outcome.
    Page(oneshot::Sender<ReloadAnswer>),
}

/// Commands that are not answered yet.
enum Waiting {
    /// Reload with the policies that have new versions since.
    Reload {
        to: ReloadRequester,
        earlier: Vec<String>,
        since: Instant,
    },
    Instance(
        InstanceChange,
        oneshot::Sender<Result<InstanceAnswer, RefusedChange>>,
    ),
    Policy(
        PolicyChange,
        oneshot::Sender<Result<PolicyReport, RefusedPolicyChange>>,
    ),
    /// Change of a policy that is made once its file is compiled.
    Changed(
        PolicyChange,
        oneshot::Sender<Result<PolicyReport, RefusedPolicyChange>>,
    ),
    Route(
        RouteChange,
        oneshot::Sender<Result<RouteAnswer, RefusedRouteChange>>,
    ),
    File(FileEdit, oneshot::Sender<Result<FileAnswer, RefusedEdit>>),
}

impl Waiting {
    fn of(commands: ReloadCommand) -> Option<Self> {
        let reload = |to| Self::Reload {
            to,
            earlier: vec![],
            since: Instant::now(),
        };
        Some(match commands {
            ReloadCommand::Changed => return None,
            ReloadCommand::Hangup(logged) => reload(ReloadRequester::Signal(logged)),
            ReloadCommand::Reload(to) => reload(ReloadRequester::Page(to)),
            ReloadCommand::Instance(change, to) => Self::Instance(change, to),
            ReloadCommand::Policy(change, to) => Self::Policy(change, to),
            ReloadCommand::Route(change, to) => Self::Route(change, to),
            ReloadCommand::File(edit, to) => Self::File(edit, to),
        })
    }

    fn is_reload(&self) -> bool {
        matches!(self, Self::Reload { .. })
    }
}

/// Returns the cause of a round that answers these commands.
fn cause(waiting: &[Waiting]) -> ChangeCause {
    let reload = waiting.iter().find_map(|waiting| match waiting {
        Waiting::Reload { to, .. } => Some(matches!(to, ReloadRequester::Page(_))),
        _ => None,
    });
    match reload {
        Some(true) => ChangeCause::Api,
        Some(false) => ChangeCause::Signal,
        None => ChangeCause::File,
    }
}

/// Waits for a pause in the changes, or the end, and returns the commands of the meantime.
fn collect(
    first: Option<ReloadCommand>,
    received: &Receiver<ReloadCommand>,
    stop: &CancellationToken,
) -> Vec<ReloadCommand> {
    let started = Instant::now();
    let mut requested = Vec::new();
    let mut next = first;
    while let Some(commands) = next {
        if !matches!(commands, ReloadCommand::Changed) {
            requested.push(commands);
        }
        next = if started.elapsed() < PATIENCE && !stop.is_cancelled() {
            received.recv_timeout(QUIET).ok()
        } else {
            None
        };
    }
    requested
}

/// Watched folders, if the system supports it. Each error is logged once.
struct Watch {
    folders: Option<FolderWatch>,
    complaint: Option<String>,
}

impl Watch {
    fn start(commands: SyncSender<ReloadCommand>) -> Self {
        let wake = move || {
            // A full channel has a command already.
            let _ = commands.try_send(ReloadCommand::Changed);
        };
        let mut watch = Self {
            folders: None,
            complaint: None,
        };
        match FolderWatch::start(wake) {
            Ok(folders) => watch.folders = Some(folders),
            Err(error) => watch.complain(Some(error_chain(&error))),
        }
        watch
    }

    fn set(&mut self, paths: &[PathBuf]) {
        if let Some(folders) = &mut self.folders {
            let failed = folders.set(paths.iter().map(PathBuf::as_path)).err();
            self.complain(failed.map(|error| error_chain(&error)));
        }
    }

    fn complain(&mut self, complaint: Option<String>) {
        if complaint == self.complaint {
            return;
        }
        if let Some(error) = &complaint {
            warn!(error, "changes there are noticed only every {POLL_EVERY:?}");
        }
        self.complaint = complaint;
    }
}
