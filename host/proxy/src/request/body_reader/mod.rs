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
use thiserror::Error;
use tokio::time::Instant;

use crate::base::reply::Refusal;
use crate::limits::bodies::{BodiesFull, BodyArrival, BodyPace, BodySlot, GivesWay};

/// Most bytes of memory that are reserved before they came.
const AHEAD: usize = 64 << 10;
/// Bytes of one body that are read before other requests have a turn.
const TURN: usize = 16 << 10;
/// Most bytes that are read of a client that may not come in, and the longest time for it.
const MOST_DISCARDED: usize = 1 << 20;
const DISCARD_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for a piece of the rest of a body that came too slowly.
const LATE_PIECE: Duration = Duration::from_secs(1);
/// Interval at which the scarcity of room is checked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Error of a body that could not be read.
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

/// Returns a client's body, whole, which takes its bytes from those that all bodies may have together.
pub(crate) async fn collect_client<B>(
    body: B,
    limit: usize,
    pace: BodyPace,
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

/// Works as [`collect_client`]. The rest of a refused body is read as by [`drain_refused`].
pub(crate) async fn collect_or_drain<B>(
    mut body: B,
    headers: &HeaderMap,
    limit: usize,
    pace: BodyPace,
    slot: BodySlot,
    refusal: impl FnOnce(IntakeError<B::Error>) -> Refusal,
) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    match collect_client(&mut body, limit, pace, slot).await {
        Ok(body) => Ok(body),
        Err(error) => {
            let refusal = refusal(error);
            drain_refused(&refusal, headers, body, || {}).await;
            Err(refusal)
        }
    }
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
            // While bytes are there, this task would not yield by itself.
            tokio::task::yield_now().await;
        }
    }
    Err(IntakeError::TooLarge { limit })
}

/// Returns `true` unless the body announces a rest that would not be read to its end.
fn can_be_drained<B: Body>(body: &B) -> bool {
    body.size_hint().lower() <= MOST_DISCARDED as u64
}

/// Reads an unread body for a while and discards it, so that its client gets to read the refusal.
pub(crate) async fn drain_body<B>(headers: &HeaderMap, body: B)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    // A client that waits for `100 Continue` has sent no body yet.
    if !headers.contains_key(EXPECT) && can_be_drained(&body) {
        discard(body, DISCARD_WITHIN).await;
    }
}

/// Reads the rest of a body that was refused by [`collect_client`] for a while and discards it, unless the client is
/// gone. `before` is called first if the rest is read.
pub(crate) async fn drain_refused<B>(refusal: &Refusal, headers: &HeaderMap, body: B, before: impl FnOnce())
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let (is_unread, idle) = match refusal {
        // A length that is too large is refused before the body is read.
        Refusal::BodyTooLarge { .. } => (body.size_hint().exact().is_some(), DISCARD_WITHIN),
        Refusal::BodiesFull | Refusal::MemoryFull => (false, DISCARD_WITHIN),
        // A client that sends nothing any more gets its answer soon.
        Refusal::BodyTimeout | Refusal::BodyGaveWay => (false, LATE_PIECE),
        _ => return,
    };
    let is_awaited = is_unread && headers.contains_key(EXPECT);
    if !is_awaited && can_be_drained(&body) {
        before();
        discard(body, idle).await;
    }
}

/// Reads and discards the rest of a body, so that a client that is still sending gets to read its answer. It waits
/// for a piece at most for `idle`. In all it reads no more than [`MOST_DISCARDED`], within [`DISCARD_WITHIN`].
async fn discard<B>(mut body: B, idle: Duration)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let mut left = MOST_DISCARDED;
    let reading = async {
        let mut clock = Clock::new(idle.into(), None);
        while let Ok(Some(data)) = clock.next(&mut body).await {
            left = left.saturating_sub(data.len());
            if left == 0 {
                break;
            }
        }
    };
    // The answer is the same if the time is up.
    let _ = tokio::time::timeout(DISCARD_WITHIN, reading).await;
}

/// Clock that runs once there is a wait.
struct Clock {
    pace: BodyPace,
    started: Option<Instant>,
    came: usize,
    /// Memory slot of a client's body.
    slot: Option<BodySlot>,
    /// Arrival of a client that had to be waited for.
    arrival: Option<BodyArrival>,
    window: Window,
}

impl Clock {
    fn new(pace: BodyPace, slot: Option<BodySlot>) -> Self {
        Self {
            pace,
            started: None,
            came: 0,
            slot,
            arrival: None,
            window: Window::default(),
        }
    }

    /// Returns the next data. `None` at the end.
    async fn next<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, IntakeError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error + 'static,
    {
        loop {
            match self.frame(body).await?.transpose().map_err(IntakeError::Broken)? {
                None => return Ok(None),
                // Trailers are not passed on.
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

    /// Reserves memory for bytes that came, from the budget of all bodies. A client does not lose the time that this
    /// takes.
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
        // A piece that is already there needs no clock.
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
            let pace_factor = self.slot.as_ref().map_or(1, BodySlot::pace_factor);
            let idle = self.pace.idle.saturating_sub(waited);
            let left = match self.window.is_behind(self.pace, pace_factor, self.came) {
                true => Duration::ZERO,
                false => idle.min(self.pace.patience(self.came, took, pace_factor)),
            };
            // A body whose room no other body needs waits without interruption.
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

/// Window while room is scarce: its beginning, and the bytes that had come until then.
#[derive(Default)]
struct Window(Option<(Instant, usize)>);

impl Window {
    /// Returns `true` if a body that must hurry has come too slowly in the window. An earlier lead does not count.
    fn is_behind(&mut self, pace: BodyPace, pace_factor: u32, came: usize) -> bool {
        if pace_factor == 1 || pace.rate == 0 {
            self.0 = None;
            return false;
        }
        let now = Instant::now();
        let (since, before) = *self.0.get_or_insert((now, came));
        let length = pace.grace(pace_factor);
        if now.duration_since(since) < length {
            return false;
        }
        self.0 = Some((now, came));
        let least = pace.rate.saturating_mul(pace_factor.into()) as f64 * length.as_secs_f64();
        ((came - before) as f64) < least
    }
}

/// Resolves when the body must give way. Never resolves where it is not among those that arrive.
async fn ends(arrival: Option<&BodyArrival>) -> GivesWay {
    match arrival {
        Some(arrival) => arrival.gives_way().await,
        None => std::future::pending().await,
    }
}

impl<E: std::error::Error + 'static> IntakeError<E> {
    /// Returns the refusal. `source` makes the source of a broken body.
    pub(crate) fn refusal(
        self,
        source: impl FnOnce(E) -> Box<dyn std::error::Error + Send + Sync>,
    ) -> Refusal {
        match self {
            Self::TooLarge { limit } => Refusal::BodyTooLarge { limit },
            Self::Stalled { .. } | Self::Slow { .. } => Refusal::BodyTimeout,
            Self::Full(_) => Refusal::BodiesFull,
            Self::GaveWay => Refusal::BodyGaveWay,
            Self::NoMemory => Refusal::MemoryFull,
            Self::Broken(broken) => Refusal::BodyBroken(source(broken)),
        }
    }
}

impl From<IntakeError<hyper::Error>> for Refusal {
    fn from(error: IntakeError<hyper::Error>) -> Self {
        error.refusal(Into::into)
    }
}

#[cfg(test)]
mod tests;
