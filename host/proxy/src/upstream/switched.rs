//! Connection to a worker that switched to another protocol: from then on bytes, both ways.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;

use super::connection::{Carrier, Connection, Driver, WorkerBody};
use crate::tls::Stream;

/// Stream of a connection that speaks HTTP no more. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct Switched {
    stream: Stream,
    /// Bytes that came with the head of the answer.
    ahead: Bytes,
    /// Counts the connection while it lives, and holds its seat.
    _connection: Connection,
}

impl Switched {
    /// Returns the bytes that came ahead, once, and the stream.
    pub(crate) fn parts(&mut self) -> (Bytes, &mut Stream) {
        (std::mem::take(&mut self.ahead), &mut self.stream)
    }
}

impl Connection {
    /// Sends a request that asks for another protocol and waits for the head of its answer. Where the worker switches,
    /// [`WorkerBody::into_switched`] is the stream.
    pub(crate) async fn switch(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        let mut has_ended = false;
        let mut answer = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        let answer = poll_fn(|cx| {
            drive(driver.as_mut(), &mut has_ended, cx);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (head, incoming) = answer.await?.into_parts();
        let mut switched = None;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            poll_fn(|cx| match drive(self.driver.as_mut(), &mut has_ended, cx) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            switched = self.driver.take();
        } else if has_ended {
            self.driver = None;
        }
        let body = WorkerBody::new(incoming, Carrier::Own(self), switched);
        Ok(Response::from_parts(head, body))
    }
}

/// Moves bytes until the connection has ended, without closing its socket. Returns whether it has ended.
fn drive(driver: Option<&mut Pin<Box<Driver>>>, has_ended: &mut bool, cx: &mut Context<'_>) -> bool {
    if let Some(driver) = driver.filter(|_| !*has_ended) {
        // Its error, where there is one, is that of the request on it.
        *has_ended = driver.as_mut().get_mut().poll_without_shutdown(cx).is_ready();
        return *has_ended;
    }
    true
}

impl WorkerBody {
    /// Returns the stream of a connection that switched protocols; none for one that did not.
    pub(crate) fn into_switched(self) -> Option<Switched> {
        let (driver, connection) = self.into_switched_parts()?;
        let parts = Pin::into_inner(driver).into_parts();
        Some(Switched {
            stream: parts.io.into_inner(),
            ahead: parts.read_buf,
            _connection: connection,
        })
    }
}
