//! Commands that wait for their answer, and the answers after a round.

use std::time::{Duration, Instant};

use admin_pages::control::{
    FileAnswer, FileEdit, InstanceAnswer, PolicyChange, RefusedChange, RefusedEdit, RefusedPolicyChange,
    RefusedRouteChange, ReloadAnswer, ReloadCommand, ReloadOutcome, RouteAnswer,
};
use admin_views::ChangeCause;
use policy_store::PolicyReport;
use runtime_overrides::{InstanceChange, RouteChange};
use tokio::sync::oneshot;

use super::plan::RoundFindings;
use super::{Reloader, outcome};

/// A requested reload does not wait for files that still change after this long.
const MOST_UNSETTLED: Duration = Duration::from_secs(3);

/// Sender of the answer to a change.
type ReplyTo<T, E> = oneshot::Sender<Result<T, E>>;

/// Result of a round: its outcome, and its findings.
pub(super) struct RoundResult {
    pub(super) outcome: ReloadOutcome,
    pub(super) seen: RoundFindings,
}

impl RoundResult {
    /// Returns whether a reload that was requested at `since` has no outcome yet: policies are compiled or may be
    /// half-written, and nothing else changed.
    fn is_open(&self, since: Instant) -> bool {
        let is_unsettled = self.seen.is_unsettled && since.elapsed() < MOST_UNSETTLED;
        self.outcome.is_open() && (self.seen.is_loading || is_unsettled)
    }
}

/// Requester of a reload.
pub(super) enum ReloadRequester {
    /// SIGHUP. The outcome is logged, and then the receiver is notified.
    Signal(oneshot::Sender<()>),
    /// An admin page, which gets the outcome.
    Page(oneshot::Sender<ReloadAnswer>),
}

/// A command that is not answered yet.
pub(super) enum PendingCommand {
    /// Reload that was requested at `since`. `earlier` has the policies that got new versions in the rounds since then.
    Reload {
        to: ReloadRequester,
        earlier: Vec<String>,
        since: Instant,
    },
    Instance(InstanceChange, ReplyTo<InstanceAnswer, RefusedChange>),
    Policy(PolicyChange, ReplyTo<PolicyReport, RefusedPolicyChange>),
    /// Change of a policy that is made once its file is compiled.
    CompilingPolicy(PolicyChange, ReplyTo<PolicyReport, RefusedPolicyChange>),
    Route(RouteChange, ReplyTo<RouteAnswer, RefusedRouteChange>),
    File(FileEdit, ReplyTo<FileAnswer, RefusedEdit>),
}

impl PendingCommand {
    /// Returns a command with its requester. `None` if it has none.
    pub(super) fn of(command: ReloadCommand) -> Option<Self> {
        let reload = |to| Self::Reload {
            to,
            earlier: vec![],
            since: Instant::now(),
        };
        Some(match command {
            ReloadCommand::Changed => return None,
            ReloadCommand::Hangup(logged) => reload(ReloadRequester::Signal(logged)),
            ReloadCommand::Reload(to) => reload(ReloadRequester::Page(to)),
            ReloadCommand::Instance(change, to) => Self::Instance(change, to),
            ReloadCommand::Policy(change, to) => Self::Policy(change, to),
            ReloadCommand::Route(change, to) => Self::Route(change, to),
            ReloadCommand::File(edit, to) => Self::File(edit, to),
        })
    }

    pub(super) fn is_reload(&self) -> bool {
        matches!(self, Self::Reload { .. })
    }
}

/// Returns the cause of a round that answers these commands.
pub(super) fn cause(pending: &[PendingCommand]) -> ChangeCause {
    let reload = pending.iter().find_map(|command| match command {
        PendingCommand::Reload { to, .. } => Some(matches!(to, ReloadRequester::Page(_))),
        _ => None,
    });
    match reload {
        Some(true) => ChangeCause::Api,
        Some(false) => ChangeCause::Signal,
        None => ChangeCause::File,
    }
}

impl Reloader {
    /// Runs a requested command after the round. Returns it if it needs a policy that is being compiled.
    /// The requester may have left.
    pub(super) fn answer(&mut self, command: PendingCommand, round: &RoundResult) -> Option<PendingCommand> {
        // The round's cause, and the reason of an operator before, are not this command's.
        self.journal.begin(ChangeCause::Api, None);
        match command {
            PendingCommand::Reload {
                to,
                mut earlier,
                since,
            } => {
                if round.is_open(since) {
                    earlier.extend(round.outcome.swapped().iter().cloned());
                    return Some(PendingCommand::Reload { to, earlier, since });
                }
                let outcome = round.outcome.clone().with_earlier(earlier);
                self.report(to, outcome);
            }
            PendingCommand::Instance(change, to) => drop(to.send(self.change_instance(&change))),
            PendingCommand::Policy(change, to) => match self.change_policy(&change).transpose() {
                None => return Some(PendingCommand::CompilingPolicy(change, to)),
                Some(done) => drop(to.send(done)),
            },
            PendingCommand::CompilingPolicy(change, to) => match self.changed_policy(&change).transpose() {
                None => return Some(PendingCommand::CompilingPolicy(change, to)),
                Some(done) => drop(to.send(done)),
            },
            PendingCommand::Route(change, to) => match self.change_route(&change).transpose() {
                None => return Some(PendingCommand::Route(change, to)),
                Some(done) => drop(to.send(done)),
            },
            PendingCommand::File(edit, to) => match self.edit_file(&edit).transpose() {
                None => return Some(PendingCommand::File(edit, to)),
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
            ReloadRequester::Page(to) => drop(to.send(self.answer_of(outcome))),
        }
    }
}
