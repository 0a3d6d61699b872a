//! Upgraded connection: a byte stream in both directions after the worker switched protocols.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;

use crate::connection::{Connection, Driver, RequestChannel, WorkerBody};
use crate::tls::Stream;

/// Byte stream of a connection that left HTTP. Dropping it closes the socket.
#[derive(Debug)]
pub struct UpgradedStream {
    stream: Stream,
    /// Bytes that arrived with the response head.
    read_ahead: Bytes,
    /// Keeps the connection counted and its permit held.
    _connection: Connection,
}

impl UpgradedStream {
    /// Returns the bytes that arrived with the response head, once, and the stream.
    pub fn parts(&mut self) -> (Bytes, &mut Stream) {
        (std::mem::take(&mut self.read_ahead), &mut self.stream)
    }
}

impl Connection {
    /// Sends an upgrade request and waits for the response head.
    ///
    /// If the worker switches protocols, [`WorkerBody::into_upgraded`] returns the stream.
    pub(crate) async fn send_upgrade(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<WorkerBody>, hyper::Error> {
        let mut has_ended = false;
        let mut response = pin!(self.sender.send_request(request));
        let driver = &mut self.driver;
        let response = poll_fn(|cx| {
            drive(driver.as_mut(), &mut has_ended, cx);
            response.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        });
        let (head, incoming) = response.await?.into_parts();
        let mut upgraded = None;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            poll_fn(|cx| match drive(self.driver.as_mut(), &mut has_ended, cx) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            upgraded = self.driver.take();
        } else if has_ended {
            self.driver = None;
        }
        let body = WorkerBody::new(incoming, RequestChannel::Exclusive(self), upgraded);
        Ok(Response::from_parts(head, body))
    }
}

/// Moves bytes until the connection has ended, and leaves its socket open. Returns whether it has ended.
fn drive(driver: Option<&mut Pin<Box<Driver>>>, has_ended: &mut bool, cx: &mut Context<'_>) -> bool {
    if let Some(driver) = driver.filter(|_| !*has_ended) {
        // Its error also reaches the request on the connection.
        *has_ended = driver.as_mut().get_mut().poll_without_shutdown(cx).is_ready();
        return *has_ended;
    }
    true
}

impl WorkerBody {
    /// Returns the byte stream of a connection that switched protocols, or `None` if it did not.
    #[must_use]
    pub fn into_upgraded(self) -> Option<UpgradedStream> {
        let (driver, connection) = self.into_upgraded_parts()?;
        let parts = Pin::into_inner(driver).into_parts();
        Some(UpgradedStream {
            stream: parts.io.into_inner(),
            read_ahead: parts.read_buf,
            _connection: connection,
        })
    }
}
