//! Notifications of the service manager (systemd's sd_notify(3)): ready, reloading and stopping. Without
//! `NOTIFY_SOCKET` in the environment nothing is sent.

use std::time::Duration;

use observability::error_chain;
use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Time beyond the drain in which the process ends.
const END: Duration = Duration::from_secs(10);

/// Reports the start, waits for `shutdown`, and reports the stop with the time that the drain may take.
pub(crate) async fn report_life(shutdown: CancellationToken, drain: Duration) {
    send(vec![NotifyState::Ready]).await;
    shutdown.cancelled().await;
    send(stopping(drain)).await;
}

/// Reports that a reload begins. [`report_reloaded`] must follow.
pub(crate) async fn report_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(vec![NotifyState::Reloading, now]).await,
        // The manager requires the time.
        Err(error) => failed(&error),
    }
}

/// Reports the end of a reload, whatever its outcome: the router serves.
pub(crate) async fn report_reloaded() {
    send(vec![NotifyState::Ready]).await;
}

/// Returns the states of a stop. The manager waits for the drain, even if its own limit is shorter.
fn stopping(drain: Duration) -> Vec<NotifyState<'static>> {
    let longest = drain.saturating_add(END).as_micros();
    let longest = u32::try_from(longest).unwrap_or(u32::MAX);
    vec![NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(longest)]
}

/// Sends states in one datagram, off the threads that serve: the manager's socket may be full.
async fn send(states: Vec<NotifyState<'static>>) {
    let sent = tokio::task::spawn_blocking(move || sd_notify::notify(&states)).await;
    if let Ok(Err(error)) = sent {
        failed(&error);
    }
}

fn failed(error: &std::io::Error) {
    warn!(
        error = error_chain(error),
        "the service manager was not notified of the router's state: it may end the router for its silence"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(states: &[NotifyState<'_>]) -> Vec<String> {
        states.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_stop_extends_the_managers_limit_by_the_drain() {
        let states = stopping(Duration::from_secs(50));
        assert_eq!(words(&states), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=60000000"]);
    }

    #[test]
    fn a_drain_beyond_the_range_of_the_protocol_gets_its_longest_time() {
        let states = stopping(Duration::MAX);
        assert_eq!(words(&states), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=4294967295"]);
    }
}
