//! Commands for the reload thread.

use std::sync::mpsc::SyncSender;

use policy_store::PolicyReport;
use runtime_overrides::{InstanceChange, RouteChange};
use tokio::sync::oneshot;

use super::{
    FileAnswer, FileEdit, InstanceAnswer, PolicyChange, RefusedChange, RefusedEdit, RefusedPolicyChange,
    RefusedRouteChange, ReloadAnswer, RouteAnswer,
};
use crate::refusal::Refusal;

/// Command for the reload thread.
#[derive(Debug)]
pub enum ReloadCommand {
    /// A watched folder or the workers of a source changed, or the router stops.
    Changed,
    /// Reload now, and send the outcome.
    Reload(oneshot::Sender<ReloadAnswer>),
    /// SIGHUP came: log the outcome, then send.
    Hangup(oneshot::Sender<()>),
    /// Add or remove an instance now, and send the outcome.
    Instance(
        InstanceChange,
        oneshot::Sender<Result<InstanceAnswer, RefusedChange>>,
    ),
    /// Roll back or resume a policy now, and send the outcome.
    Policy(
        PolicyChange,
        oneshot::Sender<Result<PolicyReport, RefusedPolicyChange>>,
    ),
    /// A change of a route's policies.
    Route(
        RouteChange,
        oneshot::Sender<Result<RouteAnswer, RefusedRouteChange>>,
    ),
    /// An edit of the configuration file, or a check of one.
    File(FileEdit, oneshot::Sender<Result<FileAnswer, RefusedEdit>>),
}

/// Sends a command, and returns its answer. Refuses if the thread is busy, or has ended.
pub(crate) async fn send_command<T>(
    commands: &SyncSender<ReloadCommand>,
    command: impl FnOnce(oneshot::Sender<T>) -> ReloadCommand,
) -> Result<T, Refusal> {
    let (answer, answered) = oneshot::channel();
    commands.try_send(command(answer)).map_err(|_| Refusal::busy())?;
    answered.await.map_err(|_| Refusal::busy())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_busy_or_has_ended_is_a_refusal() {
        let (commands, thread) = sync_channel(1);
        commands.send(ReloadCommand::Changed).unwrap();
        let busy = send_command(&commands, ReloadCommand::Reload).await.unwrap_err();
        assert_eq!(busy.code, "busy");
        drop(thread);
        let ended = send_command(&commands, ReloadCommand::Reload).await.unwrap_err();
        assert_eq!(ended.code, "busy");
    }
}
