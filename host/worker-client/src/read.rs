//! Reader of whole response bodies, with limits on size and idle time.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use thiserror::Error;
use tokio::time::timeout;

/// Maximum memory reserved ahead of the received bytes.
const RESERVE_AHEAD: usize = 64 << 10;
/// Bytes of one body that are read before the task yields.
const YIELD_AFTER: usize = 16 << 10;

/// Error of a body that could not be read to its end.
#[derive(Debug, Error)]
pub enum ReadError<E: std::error::Error + 'static> {
    /// The body is too long.
    #[error("read a body of more than {limit} bytes")]
    TooLarge {
        /// Maximum size in bytes.
        limit: usize,
    },
    /// No data arrived within the idle timeout.
    #[error("read a body: no data arrived for {waited:?}")]
    Stalled {
        /// The idle timeout.
        waited: Duration,
    },
    /// The connection failed.
    #[error("read a body")]
    Broken(#[source] E),
}

/// Reads a whole body of at most `limit` bytes, with a timeout for each wait. A body in one piece is not copied.
///
/// # Errors
/// [`ReadError`].
pub async fn read_body<B>(mut body: B, limit: usize, idle: Duration) -> Result<Bytes, ReadError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(ReadError::TooLarge { limit });
    }
    let first = next_data(&mut body, idle).await?.unwrap_or_default();
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(announced.min(first.len() + RESERVE_AHEAD).max(first.len()));
    whole.extend_from_slice(&first);
    let mut since_yield = 0;
    while whole.len() <= limit {
        match next_data(&mut body, idle).await? {
            Some(data) => {
                since_yield += data.len();
                whole.extend_from_slice(&data);
            }
            None => return Ok(whole.freeze()),
        }
        if since_yield >= YIELD_AFTER {
            since_yield = 0;
            // A body whose bytes are all there would not suspend otherwise.
            tokio::task::yield_now().await;
        }
    }
    Err(ReadError::TooLarge { limit })
}

/// Returns the next data, or `None` at the end. Trailers are skipped.
async fn next_data<B>(body: &mut B, idle: Duration) -> Result<Option<Bytes>, ReadError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    loop {
        let mut frame = pin!(body.frame());
        // Data that has arrived needs no timer.
        let frame = match poll_fn(|cx| Poll::Ready(frame.as_mut().poll(cx))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => timeout(idle, frame)
                .await
                .map_err(|_| ReadError::Stalled { waited: idle })?,
        };
        match frame.transpose().map_err(ReadError::Broken)? {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    const IDLE: Duration = Duration::from_secs(5);

    async fn pieces(pieces: &[&'static str], limit: usize) -> Result<Bytes, ReadError<Infallible>> {
        let frames = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        read_body(StreamBody::new(stream::iter(frames)), limit, IDLE).await
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let body = Bytes::from_static(b"hello");
        let read = read_body(Full::new(body.clone()), 5, IDLE).await.unwrap();
        assert_eq!(read.as_ptr(), body.as_ptr());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        assert_eq!(pieces(&["he", "llo"], 5).await.unwrap(), "hello");
        assert_eq!(pieces(&[], 5).await.unwrap(), "");
        assert!(matches!(
            pieces(&["he", "llo!"], 5).await,
            Err(ReadError::TooLarge { limit: 5 })
        ));
        let whole = Full::new(Bytes::from_static(b"hello!"));
        assert!(matches!(
            read_body(whole, 5, IDLE).await,
            Err(ReadError::TooLarge { limit: 5 })
        ));
    }

    #[tokio::test]
    async fn reading_a_large_body_yields_before_its_end() {
        let piece = Bytes::from(vec![b' '; YIELD_AFTER]);
        let frames = [piece.clone(), piece].map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let ended = Cell::new(false);
        let reading = async {
            let read = read_body(StreamBody::new(stream::iter(frames)), 2 * YIELD_AFTER, IDLE).await;
            ended.set(true);
            read.unwrap().len()
        };
        // Polled in this order.
        let (length, was_ended) = tokio::join!(reading, async { ended.get() });
        assert_eq!((length, was_ended), (2 * YIELD_AFTER, false));
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_an_error() {
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert!(matches!(
            read_body(never, 5, Duration::from_millis(1)).await,
            Err(ReadError::Stalled { .. })
        ));
    }
}
