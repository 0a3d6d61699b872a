//! Feeds that take over the contents that another feed of the same publisher has.

use std::cell::OnceCell;
use std::sync::mpsc::{Receiver, sync_channel};

use kv_feed::{FeedContents, FeedPosition, FeedSeed, FeedState};
use routing::{DpRank, WorkerId};

use crate::fixture::{Fixture, eventually};
use crate::publisher::{Form, Publisher};

/// Returns the position of a feed, read on its thread. A feed that checks for missed messages has none, and is read
/// again.
fn position(fixture: &Fixture, publisher: &mut Publisher) -> (FeedPosition, Vec<DpRank>) {
    let (sender, receiver) = sync_channel(64);
    let spec = publisher.spec();
    let position = OnceCell::new();
    eventually(
        publisher,
        || {
            let sender = sender.clone();
            let read = move |contents: &FeedContents<'_>| {
                assert_eq!(contents.worker, WorkerId(1));
                // An earlier answer may be there.
                let _ = sender.try_send((contents.position, contents.ranks.to_vec()));
            };
            fixture.feeds.read_contents(&spec, Box::new(read));
            receiver
                .try_recv()
                .is_ok_and(|received| position.set(received).is_ok())
        },
        || "no answer of the feeds' thread".to_owned(),
    );
    position.into_inner().unwrap()
}

fn received<T>(receiver: &Receiver<T>, publisher: &mut Publisher) -> T {
    let value = OnceCell::new();
    eventually(
        publisher,
        || {
            receiver
                .try_recv()
                .is_ok_and(|received| value.set(received).is_ok())
        },
        || "no answer of the feeds' thread".to_owned(),
    );
    value.into_inner().unwrap()
}

/// Seeds a feed. Returns whether the seed was taken.
fn seed(fixture: &Fixture, publisher: &mut Publisher, position: FeedPosition, ranks: Vec<DpRank>) -> bool {
    let (sender, receiver) = sync_channel(1);
    let notes = fixture.notes.clone();
    let seed = FeedSeed {
        position,
        ranks,
        fill: Box::new(move |worker| {
            assert_eq!(worker, WorkerId(1));
            notes.note("contents");
        }),
        done: Box::new(move |is_taken| sender.send(is_taken).unwrap()),
    };
    fixture.feeds.seed(&publisher.spec(), seed);
    received(&receiver, publisher)
}

/// Seeds a feed. A feed that checks for missed messages takes no seed, and is seeded again.
fn seed_until_taken(fixture: &Fixture, publisher: &mut Publisher, position: FeedPosition, ranks: &[DpRank]) {
    while !seed(fixture, publisher, position, ranks.to_vec()) {
        fixture.shows(publisher, |status| status.state == FeedState::Live);
    }
}

#[test]
fn contents_of_another_feed_are_taken_over_and_proven_by_the_publisher() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let old = Fixture::following(&mut publisher);
    publisher.publish(10).publish(11).publish(12);
    old.received_events(&mut publisher, "10, 11, 12");
    publisher.forget(2);
    let new = Fixture::following(&mut publisher);
    new.received_events(&mut publisher, "12");
    new.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.known_from == Some(2) && !status.complete
    });

    let (position, ranks) = position(&old, &mut publisher);
    assert_eq!((position.sequence, position.known_from, ranks.len()), (2, 0, 1));
    publisher.publish(13);
    seed_until_taken(&new, &mut publisher, position, &ranks);
    publisher.publish(14);
    new.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.complete && status.last_seq == Some(4)
    });
    let notes = new.notes.all();
    assert!(notes.ends_with("seeded, contents, 13, 14"), "{notes}");
}

#[test]
fn contents_that_the_publisher_cannot_prove_are_void() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let old = Fixture::following(&mut publisher);
    publisher.publish(10).publish(11);
    old.received_events(&mut publisher, "10, 11");
    let (position, ranks) = position(&old, &mut publisher);
    publisher.publish(12).publish(13).forget(3);
    let new = Fixture::following(&mut publisher);
    new.received_events(&mut publisher, "13");
    new.shows(&mut publisher, |status| status.state == FeedState::Live);
    seed_until_taken(&new, &mut publisher, position, &ranks);
    new.received_events(&mut publisher, "13, seeded, contents, gap-not-replayed, 13");
    new.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.known_from == Some(3)
    });
}

#[test]
fn a_feed_that_was_emptied_seeds_none_that_knows_more() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let emptied = Fixture::following(&mut publisher);
    publisher.publish(10).publish(11);
    emptied.received_events(&mut publisher, "10, 11");
    // The message is damaged on its way, and whole in the replay.
    publisher
        .send_frames(&[b"kv-events", &2_u64.to_be_bytes(), b"damaged"])
        .lose(12);
    publisher.publish(13);
    emptied.received_events(&mut publisher, "10, 11, undecodable, 13");
    publisher.forget(1);
    let new = Fixture::following(&mut publisher);
    new.received_events(&mut publisher, "11, 12, 13");
    new.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.known_from == Some(1)
    });
    let (position, ranks) = position(&emptied, &mut publisher);
    assert_eq!((position.sequence, position.known_from), (3, 3));
    assert!(!seed(&new, &mut publisher, position, ranks));
    new.received_events(&mut publisher, "11, 12, 13");
}

#[test]
fn a_feed_that_knows_as_much_takes_nothing_over() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let one = Fixture::following(&mut publisher);
    publisher.publish(10);
    one.received_events(&mut publisher, "10");
    let (position, ranks) = position(&one, &mut publisher);
    assert!(!seed(&one, &mut publisher, position, ranks));
    one.received_events(&mut publisher, "10");
}
