//! Properties of sessions for arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::command::{command, metadata};
use super::fault::Fault;
use super::frames::write_frame;
use super::greeting::greeting;
use super::limits::FeedLimits;
use super::session::{SessionEvent, SocketRole, ZmtpSession};

const LIMITS: FeedLimits = FeedLimits {
    frame: 600,
    message: 1_000,
    feed: 10_000,
    total: 10_000,
};

/// Feeds a session in pieces of these lengths, the rest at once.
fn run(bytes: &[u8], pieces: &[usize]) -> (Vec<SessionEvent>, Option<Fault>) {
    let topic = Box::default();
    let mut session = ZmtpSession::new(SocketRole::Subscriber { topic }, LIMITS, None);
    let (mut events, mut held, mut rest) = (Vec::new(), 0, bytes);
    let lengths = pieces.iter().copied().chain([usize::MAX]);
    for length in lengths {
        let (piece, later) = rest.split_at(length.min(rest.len()));
        let mut input = piece;
        rest = later;
        loop {
            match session.advance(&mut input) {
                Ok(Some(event)) => {
                    match &event {
                        SessionEvent::Reserve(bytes) => held += bytes,
                        SessionEvent::Message(frames) => {
                            let message: usize = frames.iter().map(Vec::len).sum();
                            assert!(message <= LIMITS.message);
                            held = 0;
                        }
                        SessionEvent::Skipped => held = 0,
                        SessionEvent::Ready => {}
                    }
                    // The grants for a message bound the bytes read of it.
                    assert!(held <= LIMITS.largest_message());
                    assert!(session.body_capacity() <= LIMITS.largest_message());
                    events.push(event);
                }
                Ok(None) => break,
                Err(fault) => return (events, Some(fault)),
            }
        }
        assert!(input.is_empty());
    }
    (events, None)
}

/// Generates a publisher's opening, then frames of any kind and length.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        vec(any::<u8>(), 0..40),
        (0_usize..700).prop_map(|length| vec![0; length]),
        vec(any::<u8>(), 0..20).prop_map(|data| command("PING", &data)),
    ];
    vec((body, 0_u8..3), 0..30).prop_map(|frames| {
        let mut bytes = greeting("NULL").to_vec();
        let ready = command("READY", &metadata(&[("Socket-Type", b"PUB")]));
        write_frame(&mut bytes, true, false, &ready);
        for (body, kind) in frames {
            write_frame(&mut bytes, kind == 2, kind == 1, &body);
        }
        bytes
    })
}

proptest! {
    #[test]
    fn random_bytes_never_take_more_than_the_limits(bytes in vec(any::<u8>(), 0..400)) {
        run(&bytes, &[]);
        run(&[&greeting("NULL")[..], &bytes].concat(), &[]);
    }

    #[test]
    fn read_boundaries_do_not_change_the_outcome(bytes in conversation(), pieces in vec(0_usize..90, 0..60)) {
        prop_assert_eq!(run(&bytes, &pieces), run(&bytes, &[]));
    }

    #[test]
    fn changed_bytes_never_take_more_than_the_limits(
        bytes in conversation(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        run(&bytes, &[]);
    }
}
