//! Response body that keeps its connection busy.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::edge::connections::ActiveRequest;

/// Response body that keeps its connection marked as busy until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionBody<B> {
    body: B,
    _active: ActiveRequest,
}

impl<B> ConnectionBody<B> {
    pub(super) fn new(body: B, active: ActiveRequest) -> Self {
        Self {
            body,
            _active: active,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for ConnectionBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
