//! Tests of the reader of client bodies.

use std::convert::Infallible;

use futures_util::{StreamExt, stream};
use http_body_util::{Full, StreamBody};

use super::*;
use crate::limits::bodies::{Bodies, BodyTotals};

const PATIENCE: Duration = Duration::from_secs(5);

/// Reads a client's body with room for all its bytes.
async fn collect<B>(body: B, limit: usize, pace: impl Into<BodyPace>) -> Result<Bytes, IntakeError<B::Error>>
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
    // The futures are polled in this order: the other one runs while the body is not read to its end.
    let (length, was_ended) = tokio::join!(reading, async { ended.get() });
    assert_eq!((length, was_ended), (2 * TURN, false));
}

#[test]
fn a_body_earns_its_time_by_what_came() {
    let pace = BodyPace {
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
    assert_eq!(BodyPace::from(PATIENCE).patience(0, 9 * PATIENCE, 64), PATIENCE);
}

#[test]
fn a_hasty_body_has_a_part_of_its_time_and_a_second_at_least() {
    let pace = BodyPace {
        idle: Duration::from_secs(60),
        grace: Duration::from_secs(30),
        rate: 1,
    };
    let check = |came, took, pace_factor, expected| {
        let patience = pace.patience(came, Duration::from_secs(took), pace_factor);
        assert_eq!(
            patience,
            Duration::from_secs(expected),
            "{came} {took} {pace_factor}"
        );
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
    // This grace ends long after the test.
    let grace = Duration::from_secs(3_600);
    let pace = BodyPace {
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
async fn a_fast_body_that_stalls_is_refused_early_if_body_memory_is_scarce() {
    let bodies = Bodies::default();
    bodies.set_limits(BodyTotals {
        unfinished: 200,
        ..BodyTotals::default()
    });
    let pace = BodyPace {
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
    let pace = BodyPace {
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
