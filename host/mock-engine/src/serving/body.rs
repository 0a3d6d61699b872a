//! Response bodies: whole, token by token as server-sent events, or truncated by a fault. Dropping an unfinished body
//! (the client disconnected) closes the sequence's channel, which notifies the scheduler.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use hyper::Response;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use thiserror::Error;

use crate::fault_script::{FaultScript, HeldStream};
use crate::sequence::Finish;
use crate::serving::context::Tokens;
use crate::serving::stream::Stream;

/// The body ends too early: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("finish the body: it was cut short")]
pub(crate) struct CutShort;

/// Contents of a body.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// All of it at once.
    Whole(Bytes),
    /// A part of it, then an abort.
    Torn(CutBody),
    /// Tokens as they are generated.
    Tokens(Box<TokenStream>),
}

/// A beginning, delivered before the connection is closed.
#[derive(Debug)]
pub(crate) struct CutBody {
    beginning: Bytes,
    flushed: bool,
}

/// One answer as events.
#[derive(Debug)]
pub(crate) struct TokenStream {
    tokens: Tokens,
    shape: Stream,
    ready: VecDeque<Bytes>,
    delivered: u32,
    cut_after: Option<u32>,
    flushed: bool,
    faults: Arc<FaultScript>,
    held: Option<HeldStream>,
    /// Choices that have not ended.
    open: usize,
}

impl ReplyBody {
    /// Returns a body that is cut off after half of these bytes.
    pub(crate) fn torn(bytes: &Bytes) -> Self {
        Self::Torn(CutBody {
            beginning: bytes.slice(..bytes.len() / 2),
            flushed: false,
        })
    }

    /// Returns a body of tokens in this shape; held or cut off after some of them by a fault.
    pub(crate) fn tokens(
        tokens: Tokens,
        shape: Stream,
        cut_after: Option<u32>,
        faults: Arc<FaultScript>,
    ) -> Self {
        Self::Tokens(Box::new(TokenStream {
            open: shape.choices(),
            tokens,
            shape,
            ready: VecDeque::new(),
            delivered: 0,
            cut_after,
            flushed: false,
            faults,
            held: None,
        }))
    }
}

/// Lets hyper write its buffer once, so that a cut loses nothing before it.
fn flush_then_cut<T>(flushed: &mut bool, context: &Context<'_>) -> Poll<Option<Result<T, CutShort>>> {
    if std::mem::replace(flushed, true) {
        return Poll::Ready(Some(Err(CutShort)));
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

impl TokenStream {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutShort>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.open == 0 {
                return Poll::Ready(None);
            }
            if self.held.is_none() {
                self.held = self.faults.hold(self.delivered);
            }
            if let Some(held) = &mut self.held {
                ready!(held.poll_released(context));
                self.held = None;
                continue;
            }
            if self.cut_after == Some(self.delivered) {
                return flush_then_cut(&mut self.flushed, context);
            }
            let Some(output) = ready!(self.tokens.receiver.poll_recv(context)) else {
                return Poll::Ready(Some(Err(CutShort)));
            };
            self.delivered += 1;
            self.open = match output.finish {
                Some(Finish::Error) => 0,
                Some(Finish::Stop | Finish::Length) => self.open.saturating_sub(1),
                None => self.open,
            };
            self.shape.token(&output, &mut self.ready);
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Self::Torn(torn) if torn.beginning.is_empty() => flush_then_cut(&mut torn.flushed, context),
            Self::Torn(torn) => Poll::Ready(Some(Ok(std::mem::take(&mut torn.beginning)))),
            Self::Tokens(stream) => stream.poll_event(context),
        };
        piece.map(|piece| piece.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Torn(_) | Self::Tokens(_) => SizeHint::default(),
        }
    }
}

/// Returns a response of one content type.
pub(crate) fn reply(status: StatusCode, content_type: &'static str, body: ReplyBody) -> Response<ReplyBody> {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    reply
}

/// Returns a JSON response.
pub(crate) fn json_reply(status: StatusCode, value: &Value) -> Response<ReplyBody> {
    reply(
        status,
        "application/json",
        ReplyBody::Whole(Bytes::from(value.to_string())),
    )
}

/// Returns a response without a body.
pub(crate) fn empty_reply(status: StatusCode) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::Whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// Response type of a service that never fails.
pub(crate) type HttpResult = Result<Response<ReplyBody>, Infallible>;
