//! One connection of a client, from its first byte to its last.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::framing::Guard;
use super::metrics::{EdgeMetrics, Turned};
use super::service::Service;
use super::spec::EdgeLimits;
use crate::connections::TakenSeat;
use crate::realtime::OpenedTunnel;
use crate::tls::{ServerTls, Stream};

/// How long streams that are cut may take to say so.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long an answer whose time is up may take to say so to a client that reads.
const TO_SAY_SO: Duration = Duration::from_millis(500);
/// Bytes of a connection's buffer besides those of the longest head: hyper answers what overflows it by itself, without a
/// body.
const BUFFER: usize = 64 << 10;

/// A connection on which nothing has moved for so long is asked whether the client is still there.
const PROBE_AFTER: Duration = Duration::from_secs(30);
/// Pause between two such questions.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// Serves a connection until it ends, `stop` asks for that, or `cut` does at once.
pub(super) async fn serve(stream: TcpStream, service: Service, seat: TakenSeat, cut: CancellationToken) {
    let snapshot = service.proxy.snapshots.load();
    let (limits, patience) = (snapshot.edge.limits, snapshot.limits.idle_timeout);
    let tls = snapshot.edge.tls.clone();
    drop(snapshot);
    if let Err(error) = set_options(&stream, patience) {
        debug!(
            error = &error as &dyn std::error::Error,
            "failed to set a connection's options"
        );
    }
    let metrics = service.proxy.metrics.edge.clone();
    let secured = secured(stream, tls.as_deref(), limits.head_timeout, &metrics);
    let stream = tokio::select! {
        biased;
        stream = secured => stream,
        // Nothing was asked yet.
        () = seat.stopped() => None,
    };
    let Some(stream) = stream else { return };
    if let Some(why) = converse(stream, &service, &seat, cut, &limits).await {
        metrics.turned(why);
    }
}

/// The stream after the handshake, where there is to be one.
async fn secured(
    stream: TcpStream,
    tls: Option<&ServerTls>,
    limit: Duration,
    metrics: &EdgeMetrics,
) -> Option<Stream> {
    let Some(tls) = tls else {
        return Some(Stream::Plain(stream));
    };
    match timeout(limit, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            metrics.shook_hands();
            Some(stream)
        }
        Ok(Err(error)) => {
            metrics.turned(Turned::TlsFailed);
            debug!(
                error = &error as &dyn std::error::Error,
                "a client failed to begin TLS"
            );
            None
        }
        Err(_) => {
            metrics.turned(Turned::TlsTimeout);
            None
        }
    }
}

/// Requests and answers. Why it ended, where that was the router's doing.
async fn converse(
    stream: Stream,
    service: &Service,
    seat: &TakenSeat,
    cut: CancellationToken,
    limits: &EdgeLimits,
) -> Option<Turned> {
    let heard = AtomicBool::new(false);
    let opened = OpenedTunnel::default();
    let answer = service_fn(|request| {
        heard.store(true, Ordering::Relaxed);
        service.call(request, seat.turn(), &opened)
    });
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.keep_alive_timeout)
        .max_buf_size(limits.header_bytes + BUFFER)
        .serve_connection(TokioIo::new(Guard::new(stream, opened.switched())), answer)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut unheard = pin!(unheard(&heard, limits.head_timeout));
    let mut overdue = pin!(overdue(|| seat.deadline()));
    let served = tokio::select! {
        biased;
        served = connection.as_mut() => served,
        () = unheard.as_mut() => return Some(Turned::HeadTimeout),
        () = overdue.as_mut() => return Some(Turned::Overdue),
        () = seat.stopped() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                served = connection.as_mut() => served,
                () = unheard => return Some(Turned::HeadTimeout),
                () = overdue => return Some(Turned::Overdue),
                () = cut.cancelled() => {
                    let _ = timeout(LAST_WORDS, connection).await;
                    return None;
                }
            }
        }
    };
    let Err(error) = served else {
        if opened.is_there() {
            let _turn = seat.turn();
            // On the heap: every connection would carry its room.
            Box::pin(opened.run(cut, &service.proxy.metrics.edge.tunnels)).await;
        }
        return None;
    };
    debug!(
        error = &error as &dyn std::error::Error,
        "a connection ended early"
    );
    why(&error)
}

/// As what a connection that ended early is counted; a client that left is not.
fn why(error: &hyper::Error) -> Option<Turned> {
    if error.is_timeout() {
        Some(Turned::KeepAlive)
    } else if error.is_parse_too_large() {
        Some(Turned::HeadTooLarge)
    } else if error.is_parse() {
        Some(Turned::Malformed)
    } else {
        None
    }
}

/// Ends when nothing was heard for `limit`, and never once something was.
async fn unheard(heard: &AtomicBool, limit: Duration) {
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
async fn overdue(deadline: impl Fn() -> Option<Instant>) {
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
fn set_options(stream: &TcpStream, patience: Duration) -> std::io::Result<()> {
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
