//! Notifications of the service manager (systemd's sd_notify(3)): ready, reloading and stopping. Without
//! `NOTIFY_SOCKET` in the environment nothing is sent.

use std::time::Duration;

use observability::error_chain;
use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Time beyond the drain in which the process ends.
const END: Duration = Duration::from_secs(10);
/// Interval of the reports of a stop that goes on.
const REPEAT: Duration = Duration::from_mins(1);
/// Longest time of one report of a stop.
const LONGEST: Duration = REPEAT.saturating_mul(2);

/// Reports the start, waits for `shutdown`, and reports the stop with the time that the drain may take.
pub(crate) async fn report_life(shutdown: CancellationToken, drain: Duration) {
    send(vec![NotifyState::Ready]).await;
    shutdown.cancelled().await;
    send(stopping(drain.saturating_add(END))).await;
}

/// Waits for `shutdown`, and reports a long stop again until the time that the drain may take is over.
pub(crate) async fn extend_stop(shutdown: CancellationToken, drain: Duration) {
    shutdown.cancelled().await;
    repeat_stop(drain, |left| send(stopping(left))).await;
}

/// Reports the time that is left, each [`REPEAT`] after the first report, until one has all of it.
async fn repeat_stop<R: Future<Output = ()>>(drain: Duration, report: impl Fn(Duration) -> R) {
    let mut left = drain.saturating_add(END);
    while left > LONGEST {
        tokio::time::sleep(REPEAT).await;
        left = left.saturating_sub(REPEAT);
        report(left).await;
    }
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

/// Returns the states of a stop that may take `left` longer, at most [`LONGEST`] at a time: the protocol has 32 bits of
/// microseconds, so a longer stop is reported again. The manager waits for it, even if its own limit is shorter.
fn stopping(left: Duration) -> Vec<NotifyState<'static>> {
    let longest = left.min(LONGEST).as_micros() as u32;
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
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    fn words(states: &[NotifyState<'_>]) -> Vec<String> {
        states.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_stop_extends_the_managers_limit_by_the_drain() {
        let states = stopping(Duration::from_mins(1));
        assert_eq!(words(&states), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=60000000"]);
    }

    #[test]
    fn a_long_stop_is_extended_part_by_part() {
        let states = stopping(Duration::MAX);
        assert_eq!(words(&states), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=120000000"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_stop_is_reported_again_before_the_time_of_the_report_before_is_over() {
        let reports = Mutex::new(Vec::new());
        let begin = Instant::now();
        repeat_stop(Duration::from_secs(290), |left| {
            reports
                .lock()
                .unwrap()
                .push((begin.elapsed().as_secs(), left.as_secs()));
            std::future::ready(())
        })
        .await;
        assert_eq!(*reports.lock().unwrap(), [(60, 240), (120, 180), (180, 120)]);
        repeat_stop(Duration::from_secs(110), |_| async {
            panic!("the first has all of it")
        })
        .await;
    }
}
