//! Connection to a worker, and the response body that owns it.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::driver_waker::{DriverWaker, take_quietly};
use crate::http2::SharedStream;
use crate::permit::ConnectionPermit;
use crate::tls::Stream;

/// HTTP/1.1 connection for one request at a time, driven by the request's own task.
///
/// Dropping it closes the socket at once, even during a request: the worker then cancels its work.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    pub(super) driver: Option<Pin<Box<Driver>>>,
    waker: DriverWaker,
    pub(super) opened_at: Instant,
    /// Version of the pool's TLS settings that it was opened with.
    pub(super) tls_version: u64,
    /// Held while a request uses the connection.
    pub(super) permit: ConnectionPermit,
    /// Address of the worker that accepted it.
    peer: IpAddr,
    /// Counter of the pool's open connections.
    open: Arc<AtomicUsize>,
}

pub(super) type Driver = http1::Connection<TokioIo<Stream>, Full<Bytes>>;

/// Transport of one request: an exclusive HTTP/1.1 connection, or a stream of a shared HTTP/2 connection.
#[derive(Debug)]
pub(crate) enum RequestChannel {
    Exclusive(Connection),
    Shared(SharedStream),
}

/// Response body of a worker. It owns the channel on which it arrives: dropping it early cancels the request.
#[derive(Debug)]
pub struct WorkerBody {
    incoming: Incoming,
    channel: RequestChannel,
    /// First frame, read early to inspect it.
    peeked: Option<Frame<Bytes>>,
    /// Time when the channel could take the request.
    connected: Option<Instant>,
    /// Driver of a connection that switched to another protocol. It has ended.
    upgraded: Option<Pin<Box<Driver>>>,
}

impl Connection {
    /// Starts HTTP/1.1 on a stream that was opened with this version of the TLS settings.
    pub(super) async fn handshake(
        stream: Stream,
        peer: IpAddr,
        permit: ConnectionPermit,
        open: Arc<AtomicUsize>,
        tls_version: u64,
    ) -> Result<Self, hyper::Error> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        open.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
            waker: DriverWaker::default(),
            opened_at: Instant::now(),
            tls_version,
            permit,
            peer,
            open,
        })
    }

    /// Returns whether a kept connection can send a request. Polls it first: an idle connection has no task.
    pub(super) fn is_ready(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// Sends a request and waits for the response head.
    pub(crate) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        let mut response = pin!(self.sender.send_request(request));
        let (driver, waker) = (&mut self.driver, &mut self.waker);
        let response = poll_fn(|cx| {
            drive(driver, &mut waker.context(cx));
            response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (head, incoming) = response.await?.into_parts();
        Ok(Response::from_parts(
            head,
            WorkerBody::new(incoming, RequestChannel::Exclusive(self), None),
        ))
    }

    fn drive(&mut self, cx: &Context<'_>) {
        drive(&mut self.driver, &mut self.waker.context(cx));
    }
}

impl RequestChannel {
    /// Sends a request and waits for the response head.
    pub(crate) async fn send(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        match self {
            Self::Exclusive(connection) => connection.send(request).await,
            // Boxed: this future is the larger one, and HTTP/1.1 requests would carry its size.
            Self::Shared(stream) => {
                let (response, stream) = Box::pin(stream.send(request)).await?;
                Ok(response.map(|incoming| WorkerBody::new(incoming, Self::Shared(stream), None)))
            }
        }
    }
}

/// Moves bytes between the socket and hyper's request and response halves.
///
/// The caller polls those halves directly afterwards with a no-op waker, because they can only wait for this driver.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    // The driver's error also reaches the request on the connection.
    if driver
        .as_mut()
        .is_some_and(|driver| driver.as_mut().poll(cx).is_ready())
    {
        *driver = None;
    }
}

impl WorkerBody {
    pub(super) fn new(
        incoming: Incoming,
        channel: RequestChannel,
        upgraded: Option<Pin<Box<Driver>>>,
    ) -> Self {
        Self {
            incoming,
            channel,
            peeked: None,
            connected: None,
            upgraded,
        }
    }

    /// Waits for the first data of the body and leaves it in place. Returns `None` for an empty body.
    ///
    /// # Errors
    /// Errors of the connection.
    pub async fn peek(&mut self) -> Result<Option<&Bytes>, hyper::Error> {
        if self.peeked.is_none() {
            self.peeked = self.frame().await.transpose()?;
        }
        Ok(self.peeked.as_ref().and_then(Frame::data_ref))
    }

    /// Returns the time when a connection was at hand, kept or new, and the request was written to it.
    #[must_use]
    pub fn connected_at(&self) -> Option<Instant> {
        self.connected
    }

    /// Records the time when the channel could take the request.
    pub(super) fn connected(&mut self, at: Instant) {
        self.connected = Some(at);
    }

    /// Returns the worker's address.
    #[must_use]
    pub fn peer(&self) -> IpAddr {
        match &self.channel {
            RequestChannel::Exclusive(connection) => connection.peer,
            RequestChannel::Shared(stream) => stream.peer(),
        }
    }

    /// Returns the exclusive connection of a response that was read to its end. Returns `None` for a shared one.
    pub(super) fn into_connection(self) -> Option<Connection> {
        match self.channel {
            RequestChannel::Exclusive(mut connection) => {
                connection.waker.forget_task();
                Some(connection)
            }
            RequestChannel::Shared(_) => None,
        }
    }

    /// Returns the ended driver and the connection of a response that switched protocols.
    pub(super) fn into_upgraded_parts(self) -> Option<(Pin<Box<Driver>>, Connection)> {
        match self.channel {
            RequestChannel::Exclusive(connection) => Some((self.upgraded?, connection)),
            RequestChannel::Shared(_) => None,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Body for WorkerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = self.get_mut();
        if let Some(frame) = body.peeked.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let connection = match &mut body.channel {
            RequestChannel::Exclusive(connection) => connection,
            RequestChannel::Shared(_) => return Pin::new(&mut body.incoming).poll_frame(cx),
        };
        let mut noop = Context::from_waker(Waker::noop());
        let mut take = || take_quietly(|| Pin::new(&mut body.incoming).poll_frame(&mut noop));
        if let Poll::Ready(frame) = take() {
            return Poll::Ready(frame);
        }
        connection.drive(cx);
        take()
    }

    fn is_end_stream(&self) -> bool {
        self.peeked.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let Some(data) = self.peeked.as_ref().and_then(Frame::data_ref) {
            let peeked = data.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + peeked);
            }
            hint.set_lower(hint.lower() + peeked);
        }
        hint
    }
}
