//! The frames around a payload, in every form a SUB or DEALER socket sees.

use kv_events::{FrameError, ReplayPart, SequencedPayload, live_message, replay_part};

fn frames(parts: &[&[u8]]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.to_vec()).collect()
}

const SEVEN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 7];
const END: &[u8] = &[0xff; 8];
const PAYLOAD: &[u8] = &[0x93];

#[test]
fn number_and_payload_are_found_from_the_end_of_the_frames() {
    let seventh = SequencedPayload {
        sequence: 7,
        payload: PAYLOAD,
    };
    assert_eq!(live_message(&frames(&[b"kv", SEVEN, PAYLOAD])), Ok(seventh));
    assert_eq!(
        replay_part(&frames(&[b"", SEVEN, PAYLOAD])),
        Ok(ReplayPart::Batch(seventh))
    );
    assert_eq!(
        replay_part(&frames(&[b"", b"kv", SEVEN, PAYLOAD])),
        Ok(ReplayPart::Batch(seventh))
    );
}

#[test]
fn sees_the_end_of_a_replay_in_both_forms() {
    assert_eq!(replay_part(&frames(&[b"", END, b""])), Ok(ReplayPart::End));
    assert_eq!(replay_part(&frames(&[b"", b"", END, b""])), Ok(ReplayPart::End));
    assert_eq!(
        live_message(&frames(&[b"", END, b""])),
        Err(FrameError::EndOutsideReplay)
    );
}

#[test]
fn malformed_messages_are_refused() {
    assert_eq!(live_message(&frames(&[])), Err(FrameError::Count(0)));
    assert_eq!(live_message(&frames(&[b"hello"])), Err(FrameError::Count(1)));
    assert_eq!(
        live_message(&frames(&[b"", b"short", PAYLOAD])),
        Err(FrameError::SequenceLength(5))
    );
    assert_eq!(replay_part(&frames(&[SEVEN, PAYLOAD])), Err(FrameError::Count(2)));
    assert_eq!(
        replay_part(&frames(&[b"", b"", b"", SEVEN, PAYLOAD])),
        Err(FrameError::Count(5))
    );
}
