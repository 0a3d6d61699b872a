//! Body of every response: one concrete type, so that the hot path needs no boxed trait object.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Full;
use thiserror::Error;

use crate::request::keep_alive::KeepAliveBody;
use crate::request::relay_error::RelayError;
use crate::request::stream::Relay;

/// Body that the server writes.
#[derive(Debug)]
pub(crate) enum Body {
    /// A body that the router itself wrote.
    Whole(Full<Bytes>),
    /// A worker's body, relayed.
    Relay(Box<Relay>),
    /// A stream with keep-alive comments: a worker's body, or the wait before it.
    KeepAlive(Box<KeepAliveBody>),
    /// Body of the cold routes.
    Cold(axum::body::Body),
}

/// Error of a body that broke off. The server then aborts the connection, so that the client notices.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    #[error("relay a worker's answer")]
    Relay(#[source] RelayError),
    #[error("write an answer")]
    Cold(#[source] axum::Error),
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Full::new(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = WriteError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WriteError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Relay(body) => Pin::new(&mut **body).poll_frame(cx).map_err(WriteError::Relay),
            Self::KeepAlive(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Cold(body) => Pin::new(body).poll_frame(cx).map_err(WriteError::Cold),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Relay(body) => body.is_end_stream(),
            Self::KeepAlive(body) => body.is_end_stream(),
            Self::Cold(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Relay(body) => body.size_hint(),
            Self::KeepAlive(body) => body.size_hint(),
            Self::Cold(body) => body.size_hint(),
        }
    }
}
