//! HTTP/2 server (RFC 9113): the same requests, limits and responses as over HTTP/1.1, multiplexed on a connection.
//!
//! `h2` reads frames and bounds header lists, CONTINUATION frames and streams. This module adds connection slots,
//! timeouts of streams, reset budgets, and memory limits of responses. Each stream is a task: dropping it resets the
//! stream. A stream reset by the client drops the request at the worker.

mod detect;
mod head;
mod resets;
mod stream;
mod traffic;

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use worker_client::tls::Stream;

pub(super) use self::detect::begins_with_http2;
use self::stream::StreamBody;
use self::traffic::{StreamEntry, StreamTasks, Traffic};
use super::drive::{CONNECTION_BUFFER, Ended, LAST_WORDS, no_head};
use super::respond::{Respond, Terms};
use crate::base::deadline::ResponseDeadline;
use crate::base::in_place;
use crate::base::reply::Refusal;
use crate::edge::connections::ConnectionSlot;
use crate::observe::edge_metrics::CloseReason;
use crate::request::realtime::OpenedTunnel;

/// Grace period of a closing connection without streams whose client does not answer.
const FAREWELL: Duration = Duration::from_secs(1);

/// Maximum length in bytes of a body that is sent at once.
const SENT_AT_ONCE: u64 = 64 << 10;

/// Serves a connection until it ends. Returns the reason if the router ended it.
pub(super) async fn converse<R: Respond>(
    stream: Stream,
    listener: R,
    slot: ConnectionSlot,
    cut: CancellationToken,
    terms: &Terms,
) -> Option<CloseReason> {
    let metrics = listener.metrics().clone();
    let traffic = Traffic::new(slot, metrics, terms.http2.resets, terms.patience, cut.clone());
    let piece = terms.http2.send_buffer as usize;
    let ended = {
        let service = service_fn(|request| {
            let entry = traffic.enter();
            answer(listener.clone(), entry, request, piece)
        });
        let builder = builder(terms, StreamTasks(Arc::clone(&traffic)));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        drive(pin!(connection), &traffic, &cut, terms, |it| {
            it.graceful_shutdown()
        })
        .await
    };
    traffic.end().await;
    match ended {
        Ended::CloseReason(why) => Some(why),
        Ended::Served(Err(error)) => {
            let shown = &error as &dyn Error;
            debug!(error = shown, "a connection over HTTP/2 ended early");
            why(&error)
        }
        Ended::Served(Ok(())) | Ended::Cut => None,
    }
}

fn builder(terms: &Terms, tasks: StreamTasks) -> Builder<StreamTasks> {
    let limits = &terms.http2;
    let resets = limits.resets as usize;
    let list = u32::try_from(terms.limits.header_bytes + CONNECTION_BUFFER).unwrap_or(u32::MAX);
    let mut builder = Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(list)
        .max_pending_accept_reset_streams(resets)
        .max_local_error_reset_streams(resets)
        .initial_connection_window_size(limits.window)
        .initial_stream_window_size(limits.window / 2)
        .max_send_buf_size(limits.send_buffer as usize)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    builder
}

/// Answers a request once it has a slot.
async fn answer<R: Respond>(
    listener: R,
    mut entry: StreamEntry,
    mut request: Request<Incoming>,
    piece: usize,
) -> Result<Response<StreamBody<R::Body>>, Infallible> {
    let times = entry.times();
    let is_long = request
        .body()
        .size_hint()
        .upper()
        .is_none_or(|most| most > SENT_AT_ONCE);
    let opened = OpenedTunnel::default();
    let mut response = match admit(&listener, &mut entry, &mut request).await {
        // Hyper keeps the memory of a stream's future as long as the stream; this is freed with the response's head.
        Ok(from) => in_place::pinned(|| listener.respond(request, from, &opened)).await,
        Err(refusal) => {
            listener.metrics().refused(&refusal);
            listener.refuse(&request, &refusal)
        }
    };
    if let Some(ResponseDeadline(deadline)) = response.extensions_mut().remove() {
        times.must_end(deadline);
    }
    if is_long && (response.status().is_client_error() || response.status().is_server_error()) {
        times.linger();
    }
    Ok(response.map(|body| StreamBody::new(body, piece, times, entry)))
}

/// Determines the sender of a request, after its conversion to HTTP/1.1 form and the wait for a slot.
async fn admit<R: Respond>(
    listener: &R,
    entry: &mut StreamEntry,
    request: &mut Request<Incoming>,
) -> Result<Option<IpAddr>, Refusal> {
    head::to_http_1_1(request)?;
    entry.acquire(request.uri().path()).await?;
    let (from, forwarded) = listener.sender(request, entry.slot())?;
    entry.is_of(forwarded);
    Ok(from)
}

/// Drives a connection to its end. `shut_down` stops the acceptance of streams.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    traffic: &Traffic,
    cut: &CancellationToken,
    terms: &Terms,
    shut_down: impl Fn(Pin<&mut C>),
) -> Ended
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut turned = pin!(async {
        tokio::select! {
            biased;
            () = traffic.flooded() => CloseReason::ResetFlood,
            () = no_head(&traffic.has_head, terms.limits.head_timeout) => CloseReason::HeadTimeout,
            () = traffic.idle(terms.limits.keep_alive_timeout) => CloseReason::KeepAlive,
        }
    });
    tokio::select! {
        biased;
        served = connection.as_mut() => return Ended::Served(served),
        why = turned.as_mut() => {
            // After a flood, nothing more is read.
            if why == CloseReason::KeepAlive {
                shut_down(connection.as_mut());
                let _ = timeout(LAST_WORDS, connection).await;
            }
            return Ended::CloseReason(why);
        }
        () = traffic.slot.stopped() => {}
    }
    shut_down(connection.as_mut());
    let must_close = traffic.slot.must_close();
    let farewell = async {
        sleep(if must_close { LAST_WORDS } else { FAREWELL }).await;
        // The last bytes of a stream leave within that time.
        traffic.idle(LAST_WORDS).await;
    };
    tokio::select! {
        biased;
        served = connection.as_mut() => Ended::Served(served),
        why = turned => Ended::CloseReason(why),
        () = farewell => Ended::Cut,
        () = cut.cancelled() => {
            let _ = timeout(LAST_WORDS, connection).await;
            Ended::Cut
        }
    }
}

/// Returns the reason to count for a connection that ended early, or `None` if the client left.
fn why(error: &hyper::Error) -> Option<CloseReason> {
    if error.is_timeout() {
        return Some(CloseReason::PingTimeout);
    }
    let broken = error
        .source()
        .and_then(|source| source.downcast_ref::<h2::Error>())?;
    match broken.reason() {
        _ if !broken.is_library() => None,
        Some(h2::Reason::ENHANCE_YOUR_CALM) => Some(CloseReason::Http2Flood),
        _ => Some(CloseReason::Malformed),
    }
}
