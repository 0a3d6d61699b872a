//! Lifetime of one connection of any listener: detection of TLS and HTTP/2, requests, and tunnels.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use worker_client::tls::Stream;

use super::drive::{CONNECTION_BUFFER, Ended, Ends, drive, set_options};
use super::framing::{FramingGuard, GuardFlags};
use super::http2;
use super::respond::{self, Respond};
use crate::base::in_place;
use crate::edge::connections::ConnectionSlot;
use crate::observe::edge_metrics::{CloseReason, Protocol};
use crate::request::realtime::OpenedTunnel;

/// Serves a connection until it ends. `stop` ends it gracefully, and `cut` ends it at once.
pub(super) async fn serve<R: Respond>(
    stream: TcpStream,
    listener: R,
    slot: ConnectionSlot,
    cut: CancellationToken,
) {
    // On the heap, as HTTP/2 below: every connection would reserve the size of these futures.
    let begun = Box::pin(begin(stream, &listener));
    let begun = tokio::select! {
        biased;
        begun = begun => begun,
        // No request has come yet.
        () = slot.stopped() => return,
    };
    let metrics = listener.metrics();
    let turned = match begun {
        Ok((stream, Protocol::Http1)) => {
            metrics.connected(Protocol::Http1);
            converse(stream, &listener, &slot, cut).await
        }
        Ok((stream, Protocol::Http2)) => {
            metrics.connected(Protocol::Http2);
            let terms = listener.terms();
            Box::pin(http2::converse(stream, listener.clone(), slot, cut, &terms)).await
        }
        Err(why) => why,
    };
    if let Some(why) = turned {
        metrics.turned(why);
    }
}

/// Detects the protocol and runs the TLS handshake. An error holds the reason to count, if there is one.
async fn begin<R: Respond>(
    stream: TcpStream,
    listener: &R,
) -> Result<(Stream, Protocol), Option<CloseReason>> {
    let (terms, metrics) = (listener.terms(), listener.metrics());
    if let Err(error) = set_options(&stream, terms.patience) {
        debug!(
            error = &error as &dyn std::error::Error,
            "failed to set a connection's options"
        );
    }
    let (limit, http2) = (terms.limits.head_timeout, &terms.http2);
    let Some(tls) = &terms.tls else {
        if !http2.prior_knowledge {
            return Ok((Stream::Plain(stream), Protocol::Http1));
        }
        let begins = timeout(limit, http2::begins_with_http2(&stream)).await;
        let begins = begins.map_err(|_| Some(CloseReason::HeadTimeout))?;
        let protocol = protocol(begins.map_err(|_| None)?);
        return Ok((Stream::Plain(stream), protocol));
    };
    match timeout(limit, tls.accept(stream, http2.alpn)).await {
        Ok(Ok((stream, is_http2))) => {
            metrics.shook_hands();
            Ok((stream, protocol(is_http2)))
        }
        Ok(Err(error)) => {
            debug!(
                error = &error as &dyn std::error::Error,
                "a client failed to begin TLS"
            );
            Err(Some(CloseReason::TlsFailed))
        }
        Err(_) => Err(Some(CloseReason::TlsTimeout)),
    }
}

fn protocol(is_http2: bool) -> Protocol {
    if is_http2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    }
}

/// Serves HTTP requests. Returns the reason for the end if the router ended the connection.
async fn converse<R: Respond>(
    stream: Stream,
    listener: &R,
    slot: &ConnectionSlot,
    cut: CancellationToken,
) -> Option<CloseReason> {
    let limits = listener.terms().limits;
    let has_head = AtomicBool::new(false);
    let opened = OpenedTunnel::default();
    let answer = service_fn(|request| {
        has_head.store(true, Ordering::Relaxed);
        // Hyper keeps the memory of a polled future as long as the connection lasts; this is freed with the
        // response's head.
        in_place::pinned(|| respond::call(listener, request, slot, &opened))
    });
    let flags = GuardFlags {
        is_switched: opened.switched(),
        ..GuardFlags::default()
    };
    let guard = FramingGuard::new(stream, flags.clone());
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.keep_alive_timeout)
        .max_buf_size(limits.header_bytes + CONNECTION_BUFFER)
        .serve_connection(TokioIo::new(guard), answer)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ends = Ends {
        has_head: &has_head,
        head_timeout: limits.head_timeout,
        slot,
        cut: &cut,
    };
    let served = match drive(connection.as_mut(), |it| it.graceful_shutdown(), ends).await {
        // Hyper answers some of these requests before it closes the connection, and some it cannot.
        Ended::Served(_) if flags.is_ambiguous.load(Ordering::Relaxed) => {
            return Some(CloseReason::Malformed);
        }
        Ended::Served(served) => served,
        Ended::CloseReason(why) => return Some(why),
        Ended::Cut => return None,
    };
    let Err(error) = served else {
        if opened.is_there() {
            let _active = slot.begin_request();
            // On the heap: every connection would reserve this future's size.
            Box::pin(opened.run(cut)).await;
        }
        return None;
    };
    debug!(
        error = &error as &dyn std::error::Error,
        "a connection ended early"
    );
    why(&error)
}

/// Returns the reason to count for a connection that ended early, or `None` if the client left.
fn why(error: &hyper::Error) -> Option<CloseReason> {
    if error.is_timeout() {
        Some(CloseReason::KeepAlive)
    } else if error.is_parse_too_large() {
        Some(CloseReason::HeadTooLarge)
    } else if error.is_parse() {
        Some(CloseReason::Malformed)
    } else {
        None
    }
}
