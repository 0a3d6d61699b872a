//! One connection to a worker, and the answer that comes on it.

use std::future::poll_fn;
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

use super::Seat;
use super::http2::SharedStream;
use crate::tls::Stream;

/// One connection, for one request at a time, driven by whoever uses it. Dropping it closes the socket at once,
/// whatever is under way on it: that is how a worker learns that a client left.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    pub(super) driver: Option<Pin<Box<Driver>>>,
    pub(super) born: Instant,
    /// While it is in use, where that is limited.
    pub(super) seat: Seat,
    /// Counted while it lives.
    open: Arc<AtomicUsize>,
}

pub(super) type Driver = http1::Connection<TokioIo<Stream>, Full<Bytes>>;

/// What carries one request to a worker: a connection of its own, or a place on one of HTTP/2.
#[derive(Debug)]
pub(crate) enum Carrier {
    Own(Connection),
    Shared(SharedStream),
}

/// The body of a worker's answer, with what it comes on.
#[derive(Debug)]
pub(crate) struct WorkerBody {
    incoming: Incoming,
    carrier: Carrier,
    /// Read already, to see what it is.
    ahead: Option<Frame<Bytes>>,
    /// Driver of a connection that switched to another protocol; it has ended.
    switched: Option<Pin<Box<Driver>>>,
}

impl Connection {
    pub(super) async fn begin(
        stream: Stream,
        seat: Seat,
        open: Arc<AtomicUsize>,
    ) -> Result<Self, hyper::Error> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        open.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
            born: Instant::now(),
            seat,
            open,
        })
    }

    /// Whether it may be used. Nobody has looked at it since it was kept.
    pub(super) fn is_ready(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// Sends a request and waits for its answer's head.
    pub(crate) async fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        let mut answer = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        let answer = poll_fn(|cx| {
            drive(driver, cx);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (head, incoming) = answer.await?.into_parts();
        Ok(Response::from_parts(
            head,
            WorkerBody::new(incoming, Carrier::Own(self), None),
        ))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, cx);
    }
}

impl Carrier {
    /// Sends a request and waits for its answer's head.
    pub(crate) async fn send(
        self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        match self {
            Self::Own(connection) => connection.send(request).await,
            // On the heap: it is the larger of the two, and requests of HTTP/1.1 would carry its room.
            Self::Shared(stream) => {
                let (answer, stream) = Box::pin(stream.send(request)).await?;
                Ok(answer.map(|incoming| WorkerBody::new(incoming, Self::Shared(stream), None)))
            }
        }
    }
}

/// Moves bytes between the socket and the halves that hyper hands out. Those halves are polled right after, with a
/// waker that does nothing: all they can wait for is this.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    // How it ended is told to the request on it, if there is one.
    if driver
        .as_mut()
        .is_some_and(|driver| driver.as_mut().poll(cx).is_ready())
    {
        *driver = None;
    }
}

impl WorkerBody {
    pub(super) fn new(incoming: Incoming, carrier: Carrier, switched: Option<Pin<Box<Driver>>>) -> Self {
        Self {
            incoming,
            carrier,
            ahead: None,
            switched,
        }
    }

    /// Waits for the first data of the body, which stays in it; none where it has none.
    pub(crate) async fn first(&mut self) -> Result<Option<&Bytes>, hyper::Error> {
        if self.ahead.is_none() {
            self.ahead = self.frame().await.transpose()?;
        }
        Ok(self.ahead.as_ref().and_then(Frame::data_ref))
    }

    /// What is to be kept of an answer that was read; none where it came on a connection that is shared.
    pub(super) fn into_connection(self) -> Option<Connection> {
        match self.carrier {
            Carrier::Own(connection) => Some(connection),
            Carrier::Shared(_) => None,
        }
    }

    pub(super) fn into_switched_parts(self) -> Option<(Pin<Box<Driver>>, Connection)> {
        match self.carrier {
            Carrier::Own(connection) => Some((self.switched?, connection)),
            Carrier::Shared(_) => None,
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
        if let Some(frame) = body.ahead.take() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let connection = match &mut body.carrier {
            Carrier::Own(connection) => connection,
            Carrier::Shared(_) => return Pin::new(&mut body.incoming).poll_frame(cx),
        };
        let mut nobody = Context::from_waker(Waker::noop());
        if let Poll::Ready(frame) = Pin::new(&mut body.incoming).poll_frame(&mut nobody) {
            return Poll::Ready(frame);
        }
        connection.drive(cx);
        Pin::new(&mut body.incoming).poll_frame(&mut nobody)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let Some(data) = self.ahead.as_ref().and_then(Frame::data_ref) {
            let ahead = data.len() as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + ahead);
            }
            hint.set_lower(hint.lower() + ahead);
        }
        hint
    }
}
