//! Following the publisher of a store: numbers from 1, no replay, and a lost message costs all that is known.

use kv_feed::{FeedState, StoreStatus};

use crate::fixture::{Fixture, eventually};
use crate::publisher::Publisher;

fn following(publisher: &mut Publisher) -> Fixture {
    let fixture = Fixture::new();
    fixture.feeds.replace(Vec::new(), vec![publisher.store_spec()]);
    publisher.await_subscriber();
    fixture
}

fn status(fixture: &Fixture) -> StoreStatus {
    fixture.feeds.store_status().remove(0)
}

#[test]
fn object_events_of_a_store_are_passed_on() {
    let mut publisher = Publisher::without_replay();
    let fixture = following(&mut publisher);
    publisher.publish_object(10).publish_object(11);
    fixture.received_events(&mut publisher, "stored 10, stored 11");
    eventually(
        &mut publisher,
        || status(&fixture).state == FeedState::Live && status(&fixture).last_seq == Some(2),
        || format!("{:?}", status(&fixture)),
    );
    let status = status(&fixture);
    assert_eq!((status.batches, status.stored), (2, 2));
    assert_eq!(fixture.feeds.status(), []);
}

#[test]
fn a_lost_message_voids_what_is_known() {
    let mut publisher = Publisher::without_replay();
    let fixture = following(&mut publisher);
    publisher.publish_object(10).lose_object().publish_object(12);
    fixture.received_events(&mut publisher, "stored 10, gap-without-replay, stored 12");
    assert_eq!(status(&fixture).resets, 1);
}

#[test]
fn a_lost_connection_voids_what_is_known_at_once() {
    let mut publisher = Publisher::without_replay();
    let fixture = following(&mut publisher);
    publisher.publish_object(10);
    fixture.received_events(&mut publisher, "stored 10");
    drop(publisher);
    let mut other = Publisher::without_replay();
    fixture.received_events(&mut other, "stored 10, connection-lost");
}

#[test]
fn a_store_is_closed_when_it_is_not_wanted_and_engines_come_and_go_beside_it() {
    let mut publisher = Publisher::without_replay();
    let fixture = following(&mut publisher);
    publisher.publish_object(10);
    fixture.received_events(&mut publisher, "stored 10");
    for engines in [vec![Publisher::without_replay().spec()], Vec::new()] {
        fixture.feeds.replace(engines, vec![publisher.store_spec()]);
    }
    publisher.publish_object(11);
    fixture.received_events(&mut publisher, "stored 10, stored 11");
    fixture.feeds.replace(Vec::new(), Vec::new());
    fixture.received_events(&mut publisher, "stored 10, stored 11, feed-removed, closed");
}
