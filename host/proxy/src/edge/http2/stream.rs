//! Timeouts of one HTTP/2 stream, and the body of its response.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::traffic::StreamEntry;

/// Deadlines of a stream. Times are in milliseconds from its beginning, counted from 1; 0 means none.
#[derive(Debug)]
pub(super) struct StreamTimes {
    pub(super) began: Instant,
    /// Write timeout: time in which the client must take a piece that is ready.
    patience: Duration,
    /// Deadline of the whole response.
    ends: AtomicU64,
    /// Time since which a piece of the response waits for the client.
    waits: AtomicU64,
    /// `true` once the response is complete.
    is_answered: AtomicBool,
    /// `true` if the client may still be sending after its response.
    lingers: AtomicBool,
}

impl StreamTimes {
    pub(super) fn new(began: Instant, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            began,
            patience,
            ends: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
        })
    }

    /// Delays the end of the stream: the client may not see its response if it is reset at once.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }

    pub(super) fn must_end(&self, deadline: Instant) {
        self.ends.store(self.since(deadline), Ordering::Relaxed);
    }

    /// Returns `true` if the response is complete: a reset after that is not counted against the client.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    /// Returns the time at which the stream is cut although its response goes on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let at = |time: &AtomicU64, after: Duration| {
            let time = time.load(Ordering::Relaxed).checked_sub(1)?;
            (self.began + Duration::from_millis(time)).checked_add(after)
        };
        let ends = at(&self.ends, Duration::ZERO);
        let waits = at(&self.waits, self.patience);
        match (ends, waits) {
            (Some(ends), Some(waits)) => Some(ends.min(waits)),
            (ends, waits) => ends.or(waits),
        }
    }

    fn since(&self, at: Instant) -> u64 {
        let millis = at.saturating_duration_since(self.began).as_millis();
        u64::try_from(millis).map_or(u64::MAX, |millis| millis.saturating_add(1))
    }
}

/// Response body in pieces of bounded size: `h2` buffers a piece until the client takes it.
#[derive(Debug)]
pub(in crate::edge) struct StreamBody<B> {
    body: B,
    /// Rest of a frame that exceeds the size of a piece.
    rest: Bytes,
    piece: usize,
    times: Arc<StreamTimes>,
    _entry: StreamEntry,
}

impl<B: HttpBody<Data = Bytes>> StreamBody<B> {
    pub(super) fn new(body: B, piece: usize, times: Arc<StreamTimes>, entry: StreamEntry) -> Self {
        if body.is_end_stream() {
            times.is_answered.store(true, Ordering::Relaxed);
        }
        Self {
            body,
            rest: Bytes::new(),
            piece,
            times,
            _entry: entry,
        }
    }

    fn hand_out(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(self.piece));
        let now = self.times.since(Instant::now());
        self.times.waits.store(now, Ordering::Relaxed);
        if self.is_end() {
            self.times.is_answered.store(true, Ordering::Relaxed);
        }
        Frame::data(piece)
    }

    fn is_end(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for StreamBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let stream = &mut *self;
        // The client has taken the previous piece.
        stream.times.waits.store(0, Ordering::Relaxed);
        if !stream.rest.is_empty() {
            return Poll::Ready(Some(Ok(stream.hand_out())));
        }
        match ready!(Pin::new(&mut stream.body).poll_frame(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(match frame.into_data() {
                Ok(data) => {
                    stream.rest = data;
                    stream.hand_out()
                }
                Err(trailers) => trailers,
            }))),
            ended => {
                stream.times.is_answered.store(true, Ordering::Relaxed);
                Poll::Ready(ended)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(exact) => SizeHint::with_exact(exact + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}
