//! What a connection of any listener does besides its requests: it ends when its first head does not come, when an answer is
//! not taken, when another connection needs its place, and when the listener closes.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::metrics::CloseReason;
use crate::edge::connections::ConnectionSlot;

/// How long streams that are cut may take to say so.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long an answer whose time is up may take to say so to a client that reads.
const TO_SAY_SO: Duration = Duration::from_millis(500);

/// A connection on which nothing has moved for so long is asked whether the client is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Pause between two such questions.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// What ends a connection besides itself.
#[derive(Clone, Copy)]
pub(super) struct Ends<'c> {
    /// Whether a head has come.
    pub(super) heard: &'c AtomicBool,
    /// For the first head.
    pub(super) head_timeout: Duration,
    pub(super) seat: &'c ConnectionSlot,
    /// What has not ended by then is cut off.
    pub(super) cut: &'c CancellationToken,
}

/// How it ended.
pub(super) enum Ended {
    /// By itself.
    Served(hyper::Result<()>),
    CloseReason(CloseReason),
    /// It was cut off, or made room.
    Cut,
}

/// Drives a connection to its end; `shut_down` lets it end after the request that is under way.
pub(super) async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    ends: Ends<'_>,
) -> Ended
where
    C: Future<Output = hyper::Result<()>>,
{
    let seat = ends.seat;
    let mut unheard = pin!(unheard(ends.heard, ends.head_timeout));
    let mut overdue = pin!(overdue(|| seat.deadline()));
    tokio::select! {
        biased;
        served = connection.as_mut() => return Ended::Served(served),
        () = unheard.as_mut() => return Ended::CloseReason(CloseReason::HeadTimeout),
        () = overdue.as_mut() => return Ended::CloseReason(CloseReason::Overdue),
        () = seat.stopped() => {}
    }
    shut_down(connection.as_mut());
    if seat.is_given_up() {
        if let Ok(served) = timeout(LAST_WORDS, connection.as_mut()).await {
            return Ended::Served(served);
        }
        // A part of a head keeps no place.
        if seat.is_given_up() {
            return Ended::Cut;
        }
    }
    tokio::select! {
        biased;
        served = connection.as_mut() => Ended::Served(served),
        () = unheard => Ended::CloseReason(CloseReason::HeadTimeout),
        () = overdue => Ended::CloseReason(CloseReason::Overdue),
        () = ends.cut.cancelled() => {
            let _ = timeout(LAST_WORDS, connection).await;
            Ended::Cut
        }
    }
}

/// Ends when nothing was heard for `limit`, and never once something was.
pub(super) async fn unheard(heard: &AtomicBool, limit: Duration) {
    let mut timer = pin!(tokio::time::sleep(limit));
    poll_fn(|cx| {
        if heard.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Ends when an answer is not taken a while after its time: an answer that cannot be written is not polled, so no timer of
/// its own could tell. It is polled whenever the connection is, so that it sees each deadline.
pub(super) async fn overdue(deadline: impl Fn() -> Option<Instant>) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let Some(deadline) = deadline() else {
            return Poll::Pending;
        };
        let at = (deadline + TO_SAY_SO).into();
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// Has the system end a connection on which the client takes nothing for `patience`, be it gone or just not
/// reading. Nobody polls an answer that cannot be written, so no timer of its own could tell, and the worker
/// would stay booked.
pub(super) fn set_options(stream: &TcpStream, patience: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY);
    socket.set_tcp_keepalive(&probes)?;
    // Not known elsewhere, where the retransmission limit has to do.
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
    async fn only_a_connection_that_has_said_nothing_is_given_up() {
        let heard = AtomicBool::new(false);
        unheard(&heard, Duration::from_millis(1)).await;
        heard.store(true, Ordering::Relaxed);
        assert_eq!(unheard(&heard, Duration::ZERO).now_or_never(), None);
    }

    #[tokio::test]
    async fn only_an_answer_whose_time_is_over_ends_its_connection() {
        assert_eq!(overdue(|| None).now_or_never(), None);
        let later = Instant::now() + Duration::from_hours(1);
        assert_eq!(overdue(|| Some(later)).now_or_never(), None);
        let past = Instant::now().checked_sub(2 * TO_SAY_SO).unwrap();
        overdue(|| Some(past)).await;
    }

    #[tokio::test]
    async fn what_is_written_to_a_client_leaves_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.unwrap();
        set_options(&stream, Duration::from_secs(7)).unwrap();
        assert!(stream.nodelay().unwrap());
    }
}
