//! One stream: its times, and the body of its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::traffic::Entry;

/// When a stream ends besides by itself. Times are milliseconds from its beginning, counted from 1; 0: none.
#[derive(Debug)]
pub(super) struct StreamTimes {
    pub(super) began: Instant,
    /// How long its client may take nothing of what is ready for it.
    patience: Duration,
    /// When the answer must have been taken.
    ends: AtomicU64,
    /// Since when a piece of the answer waits for the client.
    waits: AtomicU64,
    /// Whether all of the answer was made.
    is_answered: AtomicBool,
    /// Whether the client may be sending on although it is answered.
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

    /// The client may not see its answer when it is stopped at once.
    pub(super) fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }

    pub(super) fn must_end(&self, deadline: Instant) {
        self.ends.store(self.since(deadline), Ordering::Relaxed);
    }

    /// Whether the router has nothing more to say: what ends the stream then is no reset of the client's.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    /// When the stream ends although its answer goes on.
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

/// Body of an answer, in pieces of a bounded size: `h2` holds a piece that the client does not take yet.
#[derive(Debug)]
pub(in crate::edge) struct StreamBody<B> {
    body: B,
    /// Of a frame that is too long for one piece.
    rest: Bytes,
    piece: usize,
    times: Arc<StreamTimes>,
    _entry: Entry,
}

impl<B: HttpBody<Data = Bytes>> StreamBody<B> {
    pub(super) fn new(body: B, piece: usize, times: Arc<StreamTimes>, entry: Entry) -> Self {
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
        // The client has taken what it had.
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
