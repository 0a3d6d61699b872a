//! Tests of CURVE with bytes that libzmq sent to a client with the same random bytes (`tests/recorded/curve.py`).

use super::curve::{CurveKeys, CurveSecrets};
use super::fault::Fault;
use super::limits::FeedLimits;
use super::session::{SessionEvent, SocketRole, ZmtpSession};

const RECORDED: &str = include_str!("../../tests/recorded/curve.txt");

fn recorded(name: &str) -> Vec<u8> {
    let line = RECORDED.lines().find_map(|line| line.strip_prefix(name));
    let digits = line.unwrap().trim();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn counting<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|at| from + u8::try_from(at).unwrap())
}

fn session(client_secret: [u8; 32], limits: FeedLimits) -> ZmtpSession {
    let server = recorded("server-public").try_into().unwrap();
    let keys = CurveKeys::new(server, client_secret);
    let secrets = CurveSecrets {
        short: counting(0),
        vouch: counting(100),
    };
    let topic = b"kv"[..].into();
    ZmtpSession::new(SocketRole::Subscriber { topic }, limits, Some((keys, secrets)))
}

/// Returns the messages of the server's bytes, the session's output, and the final fault.
fn replay(session: &mut ZmtpSession, received: &[u8]) -> (Vec<Vec<Vec<u8>>>, Vec<u8>, Option<Fault>) {
    let (mut input, mut messages, mut sent) = (received, Vec::new(), Vec::new());
    loop {
        let event = session.advance(&mut input);
        sent.extend(session.take_output());
        match event {
            Ok(Some(SessionEvent::Message(message))) => messages.push(message),
            Ok(Some(_)) => {}
            Ok(None) => return (messages, sent, None),
            Err(fault) => return (messages, sent, Some(fault)),
        }
    }
}

#[test]
fn a_recorded_server_is_answered_byte_by_byte_and_its_messages_are_read() {
    let mut session = session(counting(200), FeedLimits::default());
    let (messages, sent, fault) = replay(&mut session, &recorded("received"));
    assert_eq!(fault, None);
    assert_eq!(sent, recorded("sent"));
    let topic = b"kv-events".to_vec();
    let message = |number: u64, payload: &[u8]| {
        let number = number.to_be_bytes().to_vec();
        vec![topic.clone(), number, payload.to_vec()]
    };
    assert_eq!(messages, [message(0, b"first"), message(1, &[b'x'; 300])]);
}

#[test]
fn a_server_of_another_key_is_refused() {
    let keys = CurveKeys::new([7; 32], counting(200));
    let secrets = CurveSecrets {
        short: counting(0),
        vouch: counting(100),
    };
    let topic = Box::default();
    let limits = FeedLimits::default();
    let mut session = ZmtpSession::new(SocketRole::Subscriber { topic }, limits, Some((keys, secrets)));
    assert_eq!(replay(&mut session, &recorded("received")).2, Some(Fault::Curve));
}

#[test]
fn a_box_that_was_changed_or_sent_again_is_refused() {
    let received = recorded("received");
    let mut changed = received.clone();
    *changed.last_mut().unwrap() ^= 1;
    let (messages, _, fault) = replay(&mut session(counting(200), FeedLimits::default()), &changed);
    assert_eq!((messages.len(), fault), (1, Some(Fault::Curve)));
    // The last frame again: its nonce does not grow.
    let last = received.len() - (9 + 33 + 300);
    let again = [&received[..], &received[last..]].concat();
    let (messages, _, fault) = replay(&mut session(counting(200), FeedLimits::default()), &again);
    assert_eq!((messages.len(), fault), (2, Some(Fault::Curve)));
}

#[test]
fn the_limit_of_a_frame_is_that_of_what_is_in_its_box() {
    let limits = |frame| FeedLimits {
        frame,
        ..FeedLimits::default()
    };
    let received = recorded("received");
    let run = |frame| replay(&mut session(counting(200), limits(frame)), &received);
    assert_eq!(run(300).2, None);
    assert_eq!(run(299).2, Some(Fault::FrameTooLarge));
}

#[test]
fn keys_are_not_shown() {
    let keys = CurveKeys::new([7; 32], [9; 32]);
    let public = &keys.client_public()[..4];
    assert_eq!(format!("{keys:?}"), format!("CurveKeys({public:02x?}, ..)"));
    assert_eq!(keys, keys.clone());
    assert_ne!(keys, CurveKeys::new([7; 32], [10; 32]));
}
