//! Publishers that send what would end the router if it were taken: each is disconnected, or waits.

use kv_feed::{FeedLimits, FeedState};
use routing::DpRank;

use crate::fixture::{Fixture, eventually};
use crate::publisher::Publisher;
use crate::raw::{RawPublisher, frame, message, payload};

const LIMITS: FeedLimits = FeedLimits {
    frame: 64 << 10,
    message: 80 << 10,
    feed: 256 << 10,
    total: 512 << 10,
};

/// Follows a publisher that sends a batch and then this, for ever; it is refused for this reason.
#[track_caller]
fn is_refused(bytes: &[u8], reason: &'static str) {
    let publisher = RawPublisher::bind();
    let fixture = Fixture::within(LIMITS);
    fixture.feeds.replace(vec![publisher.spec()], Vec::new());
    let mut connection = publisher.accept();
    connection.send(&message(0, &payload(10, 0)));
    let mut idle = Publisher::without_replay();
    fixture.received_events(&mut idle, "10");
    connection.send_until_closed(bytes);
    eventually(
        &mut idle,
        || fixture.status().refused.by_reason().eq([(reason, 1)]),
        || format!("{:?}", fixture.status()),
    );
    // Its events are void at once, not when it is back.
    fixture.received_events(&mut idle, "10, limit-exceeded");
    fixture.shows(&mut idle, |status| {
        status.state == FeedState::Connecting
            && status
                .reason
                .text()
                .is_some_and(|text| text.contains("exceeds a limit"))
    });
    assert_eq!(fixture.feeds.held_bytes(), 0);
    // After a pause it is followed again.
    let mut connection = publisher.accept();
    connection.send(&message(0, &payload(11, 0)));
    fixture.received_events(&mut idle, "10, limit-exceeded, 11");
}

#[test]
fn a_message_that_never_ends_is_refused() {
    is_refused(&frame(true, b""), "too-many-frames");
    is_refused(&frame(true, &[0; 60_000]), "message-too-large");
}

#[test]
fn a_frame_over_the_limit_is_refused_before_it_comes() {
    let header = &frame(false, &[0; 70_000])[..9];
    is_refused(header, "frame-too-large");
}

#[test]
fn bytes_that_are_no_frames_are_refused() {
    is_refused(&[0xff; 100], "malformed");
}

#[test]
fn a_peer_that_is_no_publisher_is_refused_and_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut idle = Publisher::without_replay();
    let fixture = Fixture::new();
    let mut spec = idle.spec();
    spec.endpoint = kv_feed::Endpoint::Connect(format!("tcp://{}", listener.local_addr().unwrap()));
    fixture.feeds.replace(vec![spec], Vec::new());
    let (mut stream, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    fixture.shows(&mut idle, |status| {
        status.refused.by_reason().eq([("not-zmtp", 1)])
    });
    listener.accept().unwrap();
}

#[test]
fn messages_wait_at_the_socket_while_those_before_them_are_not_decoded() {
    let publisher = RawPublisher::bind();
    let fixture = Fixture::within(LIMITS);
    let held = fixture.notes.gate().lock().unwrap();
    fixture.feeds.replace(vec![publisher.spec()], Vec::new());
    let mut connection = publisher.accept();
    // Sixteen times what the feed may hold.
    let sender = std::thread::spawn(move || {
        for sequence in 0..64 {
            connection.send(&message(sequence, &payload(sequence, 60_000)));
        }
        connection
    });
    let mut idle = Publisher::without_replay();
    let largest = 62_000;
    eventually(
        &mut idle,
        || fixture.feeds.held_bytes() + largest > LIMITS.feed,
        || format!("{} bytes held", fixture.feeds.held_bytes()),
    );
    for _ in 0..1_000 {
        assert!(fixture.feeds.held_bytes() <= LIMITS.feed);
        std::thread::yield_now();
    }
    drop(held);
    let all: Vec<String> = (0..64).map(|hash| hash.to_string()).collect();
    fixture.received_events(&mut idle, &all.join(", "));
    drop(sender.join().unwrap());
    eventually(
        &mut idle,
        || fixture.feeds.held_bytes() == 0,
        || format!("{} bytes held", fixture.feeds.held_bytes()),
    );
}

#[test]
fn all_publishers_together_hold_no_more_than_the_total() {
    let publishers: Vec<_> = (0..8).map(|_| RawPublisher::bind()).collect();
    let fixture = Fixture::within(LIMITS);
    let held = fixture.notes.gate().lock().unwrap();
    let specs = publishers.iter().map(RawPublisher::spec).collect();
    fixture.feeds.replace(specs, Vec::new());
    let connections: Vec<_> = publishers.iter().map(RawPublisher::accept).collect();
    let senders: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            std::thread::spawn(move || {
                for sequence in 0..8 {
                    connection.send(&message(sequence, &payload(sequence, 60_000)));
                }
                connection
            })
        })
        .collect();
    let mut idle = Publisher::without_replay();
    let largest = 62_000;
    eventually(
        &mut idle,
        || fixture.feeds.held_bytes() + largest > LIMITS.total,
        || format!("{} bytes held", fixture.feeds.held_bytes()),
    );
    assert!(fixture.feeds.held_bytes() <= LIMITS.total);
    drop(held);
    let done = || {
        fixture
            .feeds
            .status()
            .iter()
            .all(|status| status.last_seq == Some(7))
    };
    eventually(&mut idle, done, || format!("{:?}", fixture.feeds.status()));
    for sender in senders {
        drop(sender.join().unwrap());
    }
}

#[test]
fn a_feed_with_much_to_report_does_not_keep_the_others_waiting() {
    let (mut busy, mut other) = (Publisher::without_replay(), Publisher::without_replay());
    let fixture = Fixture::new();
    let held = fixture.notes.gate().lock().unwrap();
    let mut spec = other.spec();
    spec.rank = Some(DpRank(5));
    fixture.feeds.replace(vec![busy.spec(), spec], Vec::new());
    busy.await_subscriber();
    other.await_subscriber();
    let held_bytes = || fixture.feeds.held_bytes();
    let await_more = |other: &mut Publisher, than: usize| {
        eventually(
            other,
            || held_bytes() > than,
            || format!("{} bytes held", held_bytes()),
        );
        held_bytes()
    };
    // The first is in the sink when the other's comes, and then the rest.
    busy.publish(0);
    let one = await_more(&mut other, 0);
    other.publish_as(None, 7);
    await_more(&mut other, one);
    for hash in 1..900 {
        busy.publish(hash);
    }
    await_more(&mut other, 800 * one);
    drop(held);
    eventually(
        &mut other,
        || fixture.notes.all().contains("899"),
        || fixture.notes.all(),
    );
    let received_events = fixture.notes.all();
    let place = received_events
        .split(", ")
        .position(|received_events| received_events == "rank 5: 7");
    assert!(place.is_some_and(|place| place < 600), "{place:?}");
}

#[test]
fn sockets_in_files_and_in_the_abstract_namespace_are_followed() {
    let folder = std::env::temp_dir().join(format!("kv-feed-{}", std::process::id()));
    for endpoint in [
        format!("ipc://{}", folder.display()),
        format!("ipc://@kv-feed-{}", std::process::id()),
    ] {
        let mut publisher = Publisher::bound_to(&endpoint);
        let fixture = Fixture::following(&mut publisher);
        publisher.publish(10);
        fixture.received_events(&mut publisher, "10");
    }
}
