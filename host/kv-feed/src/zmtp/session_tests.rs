//! Tests of a session with a simulated peer, over NULL.

use super::fault::Fault;
use super::frames::{FRAME_COST, MAX_FRAMES, write_frame};
use super::greeting::greeting;
use super::limits::FeedLimits;
use super::session::{SessionEvent, SocketRole, ZmtpSession};
use super::{command, frames};

const LIMITS: FeedLimits = FeedLimits {
    frame: 1_000,
    message: 1_500,
    feed: 10_000,
    total: 10_000,
};

fn subscriber(topic: &str) -> ZmtpSession {
    let topic = topic.as_bytes().into();
    ZmtpSession::new(SocketRole::Subscriber { topic }, LIMITS, None)
}

/// Returns the opening of a publisher's socket of a type.
fn opening(socket_type: &[u8]) -> Vec<u8> {
    let mut bytes = greeting("NULL").to_vec();
    let ready = command::command("READY", &command::metadata(&[("Socket-Type", socket_type)]));
    write_frame(&mut bytes, true, false, &ready);
    bytes
}

/// Returns all events of some bytes, and the final fault.
fn feed(session: &mut ZmtpSession, bytes: &[u8]) -> (Vec<SessionEvent>, Option<Fault>) {
    let (mut input, mut events) = (bytes, Vec::new());
    loop {
        match session.advance(&mut input) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(fault) => return (events, Some(fault)),
        }
    }
}

fn ready(topic: &str) -> ZmtpSession {
    let mut session = subscriber(topic);
    assert_eq!(
        feed(&mut session, &opening(b"PUB")),
        (vec![SessionEvent::Ready], None)
    );
    session.take_output();
    session
}

fn message(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        write_frame(&mut bytes, false, at + 1 < parts.len(), part);
    }
    bytes
}

#[test]
fn a_subscriber_greets_and_subscribes_once_the_peer_is_ready() {
    let mut session = subscriber("kv");
    assert_eq!(session.take_output(), greeting("NULL"));
    let opening = opening(b"XPUB");
    let (hello, rest) = opening.split_at(64);
    assert_eq!(feed(&mut session, hello), (vec![], None));
    let mut expected = Vec::new();
    let ours = command::command("READY", &command::metadata(&[("Socket-Type", b"SUB")]));
    write_frame(&mut expected, true, false, &ours);
    assert_eq!(session.take_output(), expected);
    assert_eq!(feed(&mut session, rest), (vec![SessionEvent::Ready], None));
    assert_eq!(session.take_output(), message(&[b"\x01kv"]));
}

#[test]
fn a_requester_requests_a_replay_once_the_peer_is_ready() {
    let mut session = ZmtpSession::new(SocketRole::Requester { from: 7 }, LIMITS, None);
    feed(&mut session, &opening(b"ROUTER"));
    let out = session.take_output();
    assert!(out.ends_with(&message(&[b"", &7_u64.to_be_bytes()])), "{out:?}");
}

#[test]
fn a_message_is_charged_before_its_body_is_read() {
    let mut session = ready("");
    let bytes = message(&[b"topic", &[7; 300]]);
    let mut input = &bytes[..];
    assert_eq!(
        session.advance(&mut input),
        Ok(Some(SessionEvent::Reserve(5 + FRAME_COST)))
    );
    assert_eq!(&input[..5], b"topic");
    assert_eq!(
        session.advance(&mut input),
        Ok(Some(SessionEvent::Reserve(300 + FRAME_COST)))
    );
    assert_eq!(input.len(), 300);
    let frames = vec![b"topic".to_vec(), vec![7; 300]];
    assert_eq!(
        session.advance(&mut input),
        Ok(Some(SessionEvent::Message(frames)))
    );
    assert!(!session.is_amid_message());
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
    for announced in [1_001, 60 << 20, u64::MAX] {
        let mut session = ready("");
        let header = [&[2][..], &announced.to_be_bytes()].concat();
        assert_eq!(feed(&mut session, &header), (vec![], Some(Fault::FrameTooLarge)));
        assert_eq!(session.body_capacity(), 0);
    }
}

#[test]
fn a_message_over_the_limit_is_refused_at_the_frame_that_exceeds_it() {
    let mut session = ready("");
    let bytes = message(&[&[0; 1_000], &[0; 501], b"end"]);
    let (events, fault) = feed(&mut session, &bytes);
    assert_eq!(events, [SessionEvent::Reserve(1_000 + FRAME_COST)]);
    assert_eq!(fault, Some(Fault::MessageTooLarge));
}

#[test]
fn a_message_that_never_ends_is_refused_at_its_ninth_frame() {
    let mut session = ready("");
    let endless: Vec<u8> = std::iter::repeat_n([1, 0], 1_000).flatten().collect();
    let (events, fault) = feed(&mut session, &endless);
    assert_eq!((events.len(), fault), (MAX_FRAMES, Some(Fault::TooManyFrames)));
}

#[test]
fn messages_of_other_topics_are_skipped() {
    let mut session = ready("kv");
    let bytes = [message(&[b"load", b"1"]), message(&[b"kv-events", b"2"])].concat();
    let (events, _) = feed(&mut session, &bytes);
    let assert_actions: Vec<_> = events
        .into_iter()
        .filter(|event| !matches!(event, SessionEvent::Reserve(_)))
        .collect();
    let wanted = SessionEvent::Message(vec![b"kv-events".to_vec(), b"2".to_vec()]);
    assert_eq!(assert_actions, [SessionEvent::Skipped, wanted]);
}

#[test]
fn pings_are_answered_with_their_context() {
    let mut session = ready("");
    let mut ping = Vec::new();
    write_frame(&mut ping, true, false, &command::command("PING", b"\x00\x64abc"));
    assert_eq!(feed(&mut session, &ping), (vec![], None));
    let mut pong = Vec::new();
    write_frame(&mut pong, true, false, &command::command("PONG", b"abc"));
    assert_eq!(session.take_output(), pong);
}

#[test]
fn a_peer_that_is_no_publisher_is_refused() {
    for (bytes, fault) in [
        (opening(b"PULL"), Fault::SocketType),
        (greeting("CURVE").to_vec(), Fault::Mechanism),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Fault::NotZmtp),
        ([&greeting("NULL")[..], &[0, 0]].concat(), Fault::Malformed),
        (
            [&greeting("NULL")[..], b"\x04\x07\x05ERROR\x00"].concat(),
            Fault::Refused,
        ),
    ] {
        assert_eq!(
            feed(&mut subscriber(""), &bytes),
            (vec![], Some(fault)),
            "{fault}"
        );
    }
}

#[test]
fn a_command_is_bounded_whenever_it_comes() {
    let length = (frames::MAX_COMMAND as u64 + 1).to_be_bytes();
    let header = [&[6][..], &length].concat();
    let early = [&greeting("NULL")[..], &header].concat();
    assert_eq!(feed(&mut subscriber(""), &early).1, Some(Fault::FrameTooLarge));
    assert_eq!(feed(&mut ready(""), &header).1, Some(Fault::FrameTooLarge));
}
