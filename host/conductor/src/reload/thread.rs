//! When to look: the thread that waits for changes, for somebody who asks, and for time to pass.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    InstanceAnswer, PolicyChange, RefusedChange, RefusedPolicyChange, RefusedRouteChange, ReloadAnswer,
    ReloadOutcome, Reloader, RouteAnswer,
};
use crate::overlay::InstanceChange;
use crate::policy_library::{PolicyReport, chain};
use crate::route_override::RouteChange;
use crate::watch::FolderWatch;

/// Changes come in bursts (write, rename, chmod): wait until it has been quiet for this long...
const QUIET: Duration = Duration::from_millis(50);
/// ...but not longer than this.
const PATIENCE: Duration = Duration::from_millis(500);
/// A look without being told: folders that were replaced or lie on a network tell nothing.
const UNASKED: Duration = Duration::from_secs(2);
/// The next look at a file that seemed half-written.
const UNSETTLED: Duration = Duration::from_millis(100);

/// What the reload thread is told.
#[derive(Debug)]
pub(crate) enum Bell {
    /// Some watched folder changed, or the router stops.
    Changed,
    /// Somebody wants a reload now, and to know how it went.
    Asked(oneshot::Sender<ReloadAnswer>),
    /// SIGHUP came: the outcome is logged.
    Hangup,
    /// Somebody wants an instance added or removed now, and to know how it went.
    Instance(
        InstanceChange,
        oneshot::Sender<Result<InstanceAnswer, RefusedChange>>,
    ),
    /// Somebody wants a policy rolled back or resumed now, and to know how it is then.
    Policy(
        PolicyChange,
        oneshot::Sender<Result<PolicyReport, RefusedPolicyChange>>,
    ),
    /// A change of a route's policies.
    Route(
        RouteChange,
        oneshot::Sender<Result<RouteAnswer, RefusedRouteChange>>,
    ),
}

impl Reloader {
    /// Starts the thread, which ends soon after `stop` is cancelled. Ring the returned bell to make it look.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn spawn(self, stop: CancellationToken) -> io::Result<(SyncSender<Bell>, JoinHandle<()>)> {
        let (bell, rung) = sync_channel(16);
        let watched = bell.clone();
        let thread = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.run(watched, &rung, &stop))?;
        Ok((bell, thread))
    }

    fn run(mut self, bell: SyncSender<Bell>, rung: &Receiver<Bell>, stop: &CancellationToken) {
        let mut watch = Watch::start(bell);
        let mut pause = UNASKED;
        while !stop.is_cancelled() {
            watch.set(&self.paths());
            // Woken or not, there may be something to see.
            let first = rung.recv_timeout(pause).ok();
            let asked = collect(first, rung, stop);
            if stop.is_cancelled() {
                return;
            }
            let (outcome, is_unsettled) = self.reload();
            pause = if is_unsettled { UNSETTLED } else { UNASKED };
            for bell in asked {
                self.answer(bell, &outcome);
            }
        }
    }

    /// Does what was asked for after the look at the files. Whoever asked may have left.
    fn answer(&mut self, bell: Bell, outcome: &ReloadOutcome) {
        match bell {
            Bell::Changed => {}
            Bell::Hangup => outcome.log(self.active.generation.0),
            Bell::Asked(waiting) => {
                let answer = ReloadAnswer {
                    outcome: outcome.clone(),
                    report: self.status.config(),
                };
                drop(waiting.send(answer));
            }
            Bell::Instance(change, waiting) => drop(waiting.send(self.change_instance(&change))),
            Bell::Policy(change, waiting) => drop(waiting.send(self.change_policy(&change))),
            Bell::Route(change, waiting) => drop(waiting.send(self.change_route(&change))),
        }
    }
}

/// Waits until it is quiet, or everything stops, and gives what was asked for in the meantime.
fn collect(first: Option<Bell>, rung: &Receiver<Bell>, stop: &CancellationToken) -> Vec<Bell> {
    let started = Instant::now();
    let mut asked = Vec::new();
    let mut next = first;
    while let Some(bell) = next {
        if !matches!(bell, Bell::Changed) {
            asked.push(bell);
        }
        next = if started.elapsed() < PATIENCE && !stop.is_cancelled() {
            rung.recv_timeout(QUIET).ok()
        } else {
            None
        };
    }
    asked
}

/// The watched folders, where the system can watch; each complaint is told once.
struct Watch {
    folders: Option<FolderWatch>,
    complaint: Option<String>,
}

impl Watch {
    fn start(bell: SyncSender<Bell>) -> Self {
        let ring = move || {
            // A full channel is rung already.
            let _ = bell.try_send(Bell::Changed);
        };
        let mut watch = Self {
            folders: None,
            complaint: None,
        };
        match FolderWatch::start(ring) {
            Ok(folders) => watch.folders = Some(folders),
            Err(error) => watch.complain(Some(chain(&error))),
        }
        watch
    }

    fn set(&mut self, paths: &[PathBuf]) {
        if let Some(folders) = &mut self.folders {
            let failed = folders.set(paths.iter().map(PathBuf::as_path)).err();
            self.complain(failed.map(|error| chain(&error)));
        }
    }

    fn complain(&mut self, complaint: Option<String>) {
        if complaint == self.complaint {
            return;
        }
        if let Some(error) = &complaint {
            warn!(error, "changes there are noticed only every {UNASKED:?}");
        }
        self.complaint = complaint;
    }
}
