//! Timeouts and shutdown of a connection: first-head timeout, overdue responses, displacement by another connection,
//! and close of the listener.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::edge::connections::ConnectionSlot;
use crate::observe::edge_metrics::CloseReason;

/// Bytes of a connection's buffer besides those of the longest head. Hyper itself answers an overflow of the buffer,
/// without a body.
pub(super) const CONNECTION_BUFFER: usize = 64 << 10;
/// Grace period in which streams that are cut may send an error.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);
/// Grace period in which an overdue response may send an error to a client that reads.
const ERROR_GRACE: Duration = Duration::from_millis(500);

/// Idle time before the first TCP keep-alive probe.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Interval of TCP keep-alive probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// External conditions that end a connection.
#[derive(Clone, Copy)]
pub(super) struct Ends<'c> {
    /// `true` once a head has come.
    pub(super) has_head: &'c AtomicBool,
    /// Timeout of the first head.
    pub(super) head_timeout: Duration,
    pub(super) slot: &'c ConnectionSlot,
    /// Cancelled when connections still open are to be cut.
    pub(super) cut: &'c CancellationToken,
}

/// Reason why a connection ended.
pub(super) enum Ended {
    /// The connection ended by itself.
    Served(hyper::Result<()>),
    CloseReason(CloseReason),
    /// The connection was cut or displaced.
    Cut,
}

/// Drives a connection to its end. `shut_down` lets it end after the request in progress.
pub(super) async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    ends: Ends<'_>,
) -> Ended
where
    C: Future<Output = hyper::Result<()>>,
{
    let slot = ends.slot;
    let mut no_head = pin!(no_head(ends.has_head, ends.head_timeout));
    let mut overdue = pin!(overdue(|| slot.deadline()));
    tokio::select! {
        biased;
        served = connection.as_mut() => return Ended::Served(served),
        () = no_head.as_mut() => return Ended::CloseReason(CloseReason::HeadTimeout),
        () = overdue.as_mut() => return Ended::CloseReason(CloseReason::Overdue),
        () = slot.stopped() => {}
    }
    shut_down(connection.as_mut());
    if slot.must_close() {
        if let Ok(served) = timeout(LAST_WORDS, connection.as_mut()).await {
            return Ended::Served(served);
        }
        // A partial head does not protect a displaced connection.
        if slot.must_close() {
            return Ended::Cut;
        }
    }
    tokio::select! {
        biased;
        served = connection.as_mut() => Ended::Served(served),
        () = no_head => Ended::CloseReason(CloseReason::HeadTimeout),
        () = overdue => Ended::CloseReason(CloseReason::Overdue),
        () = ends.cut.cancelled() => {
            let _ = timeout(LAST_WORDS, connection).await;
            Ended::Cut
        }
    }
}

/// Resolves if no head has come within `limit`. Stays pending once a head has come.
pub(super) async fn no_head(has_head: &AtomicBool, limit: Duration) {
    let mut timer = pin!(tokio::time::sleep(limit));
    poll_fn(|cx| {
        if has_head.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Resolves when the response deadline plus a grace period has passed. A response that cannot be written is not polled,
/// so its own timer would never fire. This future is polled whenever the connection is, so that it sees each deadline.
pub(super) async fn overdue(deadline: impl Fn() -> Option<Instant>) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let Some(deadline) = deadline() else {
            return Poll::Pending;
        };
        let at = (deadline + ERROR_GRACE).into();
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Sets the TCP user timeout and keep-alive probes: the system closes a connection on which the client takes nothing
/// for `patience`. The client may be gone or may just not read. Hyper does not poll a response that it cannot write, so
/// a timer inside would not fire. The worker would stay booked.
pub(super) fn set_options(stream: &TcpStream, patience: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY);
    socket.set_tcp_keepalive(&probes)?;
    // Other systems lack this option and use their retransmission limit.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(patience))?;
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn only_a_connection_that_sent_nothing_is_given_up() {
        let has_head = AtomicBool::new(false);
        no_head(&has_head, Duration::from_millis(1)).await;
        has_head.store(true, Ordering::Relaxed);
        assert_eq!(no_head(&has_head, Duration::ZERO).now_or_never(), None);
    }

    #[tokio::test]
    async fn only_an_answer_whose_time_is_over_ends_its_connection() {
        assert_eq!(overdue(|| None).now_or_never(), None);
        let later = Instant::now() + Duration::from_hours(1);
        assert_eq!(overdue(|| Some(later)).now_or_never(), None);
        let past = Instant::now().checked_sub(2 * ERROR_GRACE).unwrap();
        overdue(|| Some(past)).await;
    }

    #[tokio::test]
    async fn client_sockets_disable_the_nagle_algorithm() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        set_options(&stream, Duration::from_secs(7)).unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
