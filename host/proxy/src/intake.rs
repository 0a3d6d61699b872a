//! Reader of whole client bodies, with limits on size, pace and memory. A body in one piece is not copied.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::Instant;

use crate::bodies::{Arrival, BodiesFull, BodySlot, GivesWay};
use crate::reply::Refusal;

/// Most bytes of memory that are reserved before they came.
const AHEAD: usize = 64 << 10;
/// Bytes of one body that are read before other requests have a turn.
const TURN: usize = 16 << 10;
/// Most bytes that are read of a client that may not come in, and for how long.
const MOST_DISCARDED: usize = 1 << 20;
const DISCARD_WITHIN: Duration = Duration::from_secs(5);
/// However scarce room is, a body may take so long.
const LEAST_GRACE: Duration = Duration::from_secs(1);
/// So often it is looked at how scarce room is.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A body could not be read.
#[derive(Debug, Error)]
pub(crate) enum IntakeError<E: std::error::Error + 'static> {
    #[error("read a body of more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("read a body: nothing came for {waited:?}")]
    Stalled { waited: Duration },
    #[error("read a body: {came} bytes came in {took:?}")]
    Slow { came: usize, took: Duration },
    #[error("read a body")]
    Full(#[source] BodiesFull),
    #[error("read a body: it gave way to another one")]
    GaveWay,
    #[error("read a body: memory is short")]
    NoMemory,
    #[error("read a body")]
    Broken(#[source] E),
}

/// How slowly a body may come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Longest wait for a piece.
    pub(crate) idle: Duration,
    /// It may take so long in all...
    pub(crate) grace: Duration,
    /// ...and one second more for each so many bytes that came; 0: for ever.
    pub(crate) rate: u64,
}

/// Only the wait for a piece counts.
impl From<Duration> for Pace {
    fn from(idle: Duration) -> Self {
        Self {
            idle,
            grace: Duration::ZERO,
            rate: 0,
        }
    }
}

impl Pace {
    fn grace(&self, haste: u32) -> Duration {
        (self.grace / haste).max(LEAST_GRACE.min(self.grace))
    }

    /// How long the next piece may be waited for, where a body must come `haste` times as fast as configured.
    fn patience(&self, came: usize, took: Duration, haste: u32) -> Duration {
        if self.rate == 0 {
            return self.idle;
        }
        let grace = self.grace(haste);
        let earned = Duration::from_secs(came as u64 / self.rate.saturating_mul(haste.into()));
        self.idle.min((grace + earned).saturating_sub(took))
    }
}

/// Returns a client's body, whole, which takes its bytes from those that all bodies may have together.
pub(crate) async fn collect_client<B>(
    body: B,
    limit: usize,
    pace: Pace,
    slot: BodySlot,
) -> Result<Bytes, IntakeError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let mut clock = Clock::new(pace, Some(slot));
    let whole = read(body, limit, &mut clock).await?;
    Ok(match clock.slot {
        Some(slot) => slot.keep(whole),
        None => whole,
    })
}

async fn read<B>(mut body: B, limit: usize, clock: &mut Clock) -> Result<Bytes, IntakeError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(IntakeError::TooLarge { limit });
    }
    let first = clock.next(&mut body).await?.unwrap_or_default();
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(announced.min(first.len() + AHEAD).max(first.len()));
    whole.extend_from_slice(&first);
    let mut turn = 0;
    while whole.len() <= limit {
        match clock.next(&mut body).await? {
            Some(data) => {
                turn += data.len();
                whole.extend_from_slice(&data);
            }
            None => return Ok(whole.freeze()),
        }
        if turn >= TURN {
            turn = 0;
            // While bytes are there, nothing else would end this task's turn.
            tokio::task::yield_now().await;
        }
    }
    Err(IntakeError::TooLarge { limit })
}

/// Reads a body for a while and keeps nothing of it, so that its client comes to read why.
pub(crate) async fn hear_out(headers: &HeaderMap, body: Incoming) {
    // Who waits to be told to go on sends nothing before.
    if !headers.contains_key(EXPECT) {
        discard(body, MOST_DISCARDED, DISCARD_WITHIN).await;
    }
}

/// Reads on and throws away, so that a client that is still sending comes to read its answer: at most `limit` bytes, for at
/// most `patience` in all.
async fn discard<B>(mut body: B, limit: usize, patience: Duration)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let mut left = limit;
    let reading = async {
        let mut clock = Clock::new(patience.into(), None);
        while let Ok(Some(data)) = clock.next(&mut body).await {
            left = left.saturating_sub(data.len());
            if left == 0 {
                break;
            }
        }
    };
    // The answer is the same if the time is up.
    let _ = tokio::time::timeout(patience, reading).await;
}

/// Runs once something has to be waited for.
struct Clock {
    pace: Pace,
    started: Option<Instant>,
    came: usize,
    /// Of a client's body.
    slot: Option<BodySlot>,
    /// Of a client that had to be waited for.
    arrival: Option<Arrival>,
    window: Window,
}

impl Clock {
    fn new(pace: Pace, slot: Option<BodySlot>) -> Self {
        Self {
            pace,
            started: None,
            came: 0,
            slot,
            arrival: None,
            window: Window::default(),
        }
    }

    /// The next data; none at the end.
    async fn next<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, IntakeError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error + 'static,
    {
        loop {
            match self.frame(body).await?.transpose().map_err(IntakeError::Broken)? {
                None => return Ok(None),
                // Trailers carry nothing that is passed on.
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        self.came += data.len();
                        self.take(data.len()).await.map_err(IntakeError::Full)?;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Takes bytes that came from those that all bodies may have. A client does not lose the time that this takes.
    async fn take(&mut self, bytes: usize) -> Result<(), BodiesFull> {
        let Some(slot) = &mut self.slot else {
            return Ok(());
        };
        let began = self.started.map(|_| Instant::now());
        slot.take(bytes).await?;
        if let (Some(started), Some(began)) = (&mut self.started, began) {
            *started += began.elapsed();
            self.window = Window::default();
        }
        if let Some(arrival) = &self.arrival {
            arrival.holds(slot.held());
        }
        Ok(())
    }

    async fn frame<B>(
        &mut self,
        body: &mut B,
    ) -> Result<Option<Result<Frame<Bytes>, B::Error>>, IntakeError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error + 'static,
    {
        let mut frame = pin!(body.frame());
        // What is there already needs no clock.
        if let Poll::Ready(frame) = poll_fn(|cx| Poll::Ready(frame.as_mut().poll(cx))).await {
            return Ok(frame);
        }
        let (now, started) = (Instant::now(), *self.started.get_or_insert_with(Instant::now));
        if let (Some(slot), None) = (&self.slot, &self.arrival) {
            self.arrival = Some(slot.arrive().map_err(IntakeError::Full)?);
        }
        let mut gives_way = pin!(ends(self.arrival.as_ref()));
        loop {
            let (took, waited) = (started.elapsed(), now.elapsed());
            let haste = self.slot.as_ref().map_or(1, BodySlot::haste);
            let idle = self.pace.idle.saturating_sub(waited);
            let left = match self.window.is_behind(self.pace, haste, self.came) {
                true => Duration::ZERO,
                false => idle.min(self.pace.patience(self.came, took, haste)),
            };
            // A body that nobody else needs the room of waits in one piece.
            let look = if self.slot.is_some() {
                left.min(LOOK_AGAIN)
            } else {
                left
            };
            tokio::select! {
                biased;
                frame = frame.as_mut() => return Ok(frame),
                why = gives_way.as_mut() => return Err(match why {
                    GivesWay::ToAnother => IntakeError::GaveWay,
                    GivesWay::ToAll => IntakeError::NoMemory,
                }),
                () = tokio::time::sleep(look) => {}
            }
            if look < left {
                continue;
            }
            return Err(if left == idle {
                IntakeError::Stalled {
                    waited: self.pace.idle,
                }
            } else {
                IntakeError::Slow {
                    came: self.came,
                    took: took + left,
                }
            });
        }
    }
}

/// While room is scarce: since when it is looked at what comes, and what had come until then.
#[derive(Default)]
struct Window(Option<(Instant, usize)>);

impl Window {
    /// Whether a body that must hurry has come too slowly of late: what it was ahead before does not count.
    fn is_behind(&mut self, pace: Pace, haste: u32, came: usize) -> bool {
        if haste == 1 || pace.rate == 0 {
            self.0 = None;
            return false;
        }
        let now = Instant::now();
        let (since, before) = *self.0.get_or_insert((now, came));
        let length = pace.grace(haste);
        if now.duration_since(since) < length {
            return false;
        }
        self.0 = Some((now, came));
        let least = pace.rate.saturating_mul(haste.into()) as f64 * length.as_secs_f64();
        ((came - before) as f64) < least
    }
}

/// Ends when the body must give way, and never where it is not among those that arrive.
async fn ends(arrival: Option<&Arrival>) -> GivesWay {
    match arrival {
        Some(arrival) => arrival.gives_way().await,
        None => std::future::pending().await,
    }
}

impl From<IntakeError<hyper::Error>> for Refusal {
    fn from(error: IntakeError<hyper::Error>) -> Self {
        match error {
            IntakeError::TooLarge { limit } => Self::BodyTooLarge { limit },
            IntakeError::Stalled { .. } | IntakeError::Slow { .. } => Self::BodyTimeout,
            IntakeError::Full(_) => Self::BodiesFull,
            IntakeError::GaveWay => Self::BodyGaveWay,
            IntakeError::NoMemory => Self::MemoryFull,
            IntakeError::Broken(source) => Self::BodyBroken(source.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt, stream};
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::bodies::{Bodies, BodyTotals};

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Reads a client's body with room for all its bytes.
    async fn collect<B>(body: B, limit: usize, pace: impl Into<Pace>) -> Result<Bytes, IntakeError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error + 'static,
    {
        let bodies = Bodies::default();
        bodies.set_limits(BodyTotals::default());
        collect_client(body, limit, pace.into(), bodies.begin(PATIENCE)).await
    }

    async fn pieces(pieces: &[&'static str], limit: usize) -> Result<Bytes, IntakeError<Infallible>> {
        let frames = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        collect(StreamBody::new(stream::iter(frames)), limit, PATIENCE).await
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let body = Bytes::from_static(b"hello");
        let read = collect(Full::new(body.clone()), 5, PATIENCE).await.unwrap();
        assert_eq!(read.as_ptr(), body.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(pieces(&["he", "llo"], 5).await.unwrap(), "hello");
        assert_eq!(pieces(&[], 5).await.unwrap(), "");
        assert!(matches!(
            pieces(&["he", "llo!"], 5).await,
            Err(IntakeError::TooLarge { limit: 5 })
        ));
        let whole = Full::new(Bytes::from_static(b"hello!"));
        assert!(matches!(
            collect(whole, 5, PATIENCE).await,
            Err(IntakeError::TooLarge { limit: 5 })
        ));
    }

    #[tokio::test]
    async fn a_large_body_that_is_all_there_lets_others_run_before_it_ends() {
        let piece = Bytes::from(vec![b' '; TURN]);
        let frames = [piece.clone(), piece].map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let ended = std::cell::Cell::new(false);
        let reading = async {
            let read = collect(StreamBody::new(stream::iter(frames)), 2 * TURN, PATIENCE).await;
            ended.set(true);
            read.unwrap().len()
        };
        // Polled in this order: the other one runs while the body is not read to its end.
        let (length, was_ended) = tokio::join!(reading, async { ended.get() });
        assert_eq!((length, was_ended), (2 * TURN, false));
    }

    #[test]
    fn a_body_earns_its_time_by_what_came() {
        let pace = Pace {
            idle: Duration::from_secs(8),
            grace: Duration::from_secs(10),
            rate: 100,
        };
        let check = |came, took, expected| {
            let patience = pace.patience(came, Duration::from_secs(took), 1);
            assert_eq!(patience, Duration::from_secs(expected), "{came} {took}");
        };
        check(0, 0, 8);
        check(0, 7, 3);
        check(0, 11, 0);
        check(500, 11, 4);
        check(100_000, 11, 8);
        assert_eq!(Pace::from(PATIENCE).patience(0, 9 * PATIENCE, 64), PATIENCE);
    }

    #[test]
    fn a_hasty_body_has_a_part_of_its_time_and_a_second_at_least() {
        let pace = Pace {
            idle: Duration::from_secs(60),
            grace: Duration::from_secs(30),
            rate: 1,
        };
        let check = |came, took, haste, expected| {
            let patience = pace.patience(came, Duration::from_secs(took), haste);
            assert_eq!(patience, Duration::from_secs(expected), "{came} {took} {haste}");
        };
        check(0, 0, 1, 30);
        check(0, 0, 5, 6);
        check(10, 6, 5, 2);
        check(0, 0, 64, 1);
        check(640, 10, 64, 1);
    }

    #[tokio::test]
    async fn a_body_that_is_waited_for_learns_that_places_have_become_scarce() {
        let bodies = Bodies::default();
        bodies.set_limits(BodyTotals {
            unfinished: 200,
            ..BodyTotals::default()
        });
        // Its time would be up when the test is long over.
        let grace = Duration::from_secs(3_600);
        let pace = Pace {
            idle: grace,
            grace: grace / 60,
            rate: 1,
        };
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut waiting = pin!(collect_client(never, 5, pace, bodies.begin(PATIENCE)));
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        let arrivals = (0..199).map(|_| bodies.begin(PATIENCE).arrive().unwrap());
        let _others: Vec<_> = arrivals.collect();
        let Err(IntakeError::Slow { came: 0, took }) = waiting.await else {
            panic!("a slow body is given up");
        };
        assert!(took < grace / 60, "{took:?}");
    }

    #[tokio::test]
    async fn where_room_is_scarce_a_body_that_came_fast_may_not_rest_on_that() {
        let bodies = Bodies::default();
        bodies.set_limits(BodyTotals {
            unfinished: 200,
            ..BodyTotals::default()
        });
        let pace = Pace {
            idle: Duration::from_secs(3_600),
            grace: Duration::from_secs(60),
            rate: 1,
        };
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 3_000])))]);
        let stalling = StreamBody::new(first.chain(stream::pending()));
        let arrivals = (0..199).map(|_| bodies.begin(PATIENCE).arrive().unwrap());
        let _others: Vec<_> = arrivals.collect();
        let Err(IntakeError::Slow { came: 3_000, took }) =
            collect_client(stalling, 9_000, pace, bodies.begin(PATIENCE)).await
        else {
            panic!("a body that stalls is given up");
        };
        assert!(took < pace.grace, "{took:?}");
    }

    #[tokio::test]
    async fn a_body_that_keeps_no_pace_is_given_up() {
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let pace = Pace {
            idle: PATIENCE,
            grace: Duration::from_millis(1),
            rate: 1,
        };
        assert!(matches!(
            collect(never, 5, pace).await,
            Err(IntakeError::Slow { came: 0, .. })
        ));
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_given_up() {
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert!(matches!(
            collect(never, 5, Duration::from_millis(1)).await,
            Err(IntakeError::Stalled { .. })
        ));
    }
}
