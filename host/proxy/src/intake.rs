//! Reading a body, a client's or a worker's: whole, within limits, without a copy where it came in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use thiserror::Error;

/// A body could not be read.
#[derive(Debug, Error)]
pub(crate) enum IntakeError<E: std::error::Error + 'static> {
    #[error("read a body of more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("read a body: nothing came for {waited:?}")]
    Stalled { waited: Duration },
    #[error("read a body")]
    Broken(#[source] E),
}

/// The whole body, of at most `limit` bytes, as long as no piece keeps us waiting for longer than `patience`.
pub(crate) async fn collect<B>(
    mut body: B,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, IntakeError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(IntakeError::TooLarge { limit });
    }
    let first = next(&mut body, patience).await?.unwrap_or_default();
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(announced.max(first.len()));
    whole.extend_from_slice(&first);
    while whole.len() <= limit {
        match next(&mut body, patience).await? {
            Some(data) => whole.extend_from_slice(&data),
            None => return Ok(whole.freeze()),
        }
    }
    Err(IntakeError::TooLarge { limit })
}

async fn next<B>(body: &mut B, patience: Duration) -> Result<Option<Bytes>, IntakeError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    loop {
        let frame = tokio::time::timeout(patience, body.frame())
            .await
            .map_err(|_| IntakeError::Stalled { waited: patience })?;
        match frame.transpose().map_err(IntakeError::Broken)? {
            None => return Ok(None),
            // Trailers carry nothing that is passed on.
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
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

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
    async fn a_body_that_stalls_is_given_up() {
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert!(matches!(
            collect(never, 5, Duration::from_millis(1)).await,
            Err(IntakeError::Stalled { .. })
        ));
    }
}
