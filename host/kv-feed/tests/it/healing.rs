//! Feeds whose connection breaks, or that are silent though they should not be.

use std::net::TcpListener;

use kv_feed::{Endpoint, FeedSpec, FeedState};
use routing::WorkerId;

use crate::fixture::{Fixture, eventually};
use crate::publisher::{Form, Publisher};

/// Follows the publisher, which publishes the message 10, until the feed is live.
fn live_feed(mut publisher: Publisher) -> (Publisher, Fixture) {
    let fixture = Fixture::checking().follows(&mut publisher);
    publisher.publish(10);
    fixture.shows(&mut publisher, |status| status.state == FeedState::Live);
    (publisher, fixture)
}

#[test]
fn a_publisher_that_restarts_to_the_very_next_number_is_known_by_its_new_connection() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10).publish(11);
    fixture.received_events(&mut publisher, "10, 11");
    publisher
        .start_anew()
        .lose(20)
        .lose(21)
        .reopen()
        .await_subscriber();
    fixture.received_events(&mut publisher, "10, 11, restarted, 20, 21");
    publisher.publish(22);
    fixture.received_events(&mut publisher, "10, 11, restarted, 20, 21, 22");
    fixture.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.complete && status.restarts == 1
    });
}

#[test]
fn messages_missed_while_disconnected_are_fetched_without_another_message() {
    let mut publisher = Publisher::new(Form::ThreeFrames);
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    publisher.lose(11).reopen().await_subscriber();
    fixture.received_events(&mut publisher, "10, 11");
    assert_eq!(fixture.status().resets, 0);
}

#[test]
fn without_replay_a_connection_that_comes_back_voids_what_is_known() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    publisher.reopen().await_subscriber();
    fixture.received_events(&mut publisher, "10, connection-lost");
}

#[test]
fn a_feed_whose_publisher_is_gone_is_not_live() {
    let (publisher, fixture) = live_feed(Publisher::new(Form::FourFrames));
    drop(publisher);
    let mut other = Publisher::without_replay();
    fixture.shows(&mut other, |status| status.state == FeedState::Connecting);
    assert!(!fixture.notes.is_live());
}

#[test]
fn a_lost_last_message_is_found_though_no_other_follows() {
    let (mut publisher, fixture) = live_feed(Publisher::new(Form::FourFrames));
    publisher.lose(11);
    fixture.received_events(&mut publisher, "10, 11");
    fixture.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.answers
    });
}

#[test]
fn a_subscription_that_brings_nothing_is_made_again() {
    let (mut publisher, fixture) = live_feed(Publisher::new(Form::FourFrames));
    publisher.lose(11);
    fixture.received_events(&mut publisher, "10, 11");
    publisher.lose(12);
    fixture.received_events(&mut publisher, "10, 11, 12");
    fixture.shows(&mut publisher, |status| status.silences == 1);
    publisher.await_subscriber();
    publisher.publish(13);
    fixture.received_events(&mut publisher, "10, 11, 12, 13");
}

#[test]
fn a_publisher_that_is_mute_is_silent_until_it_is_heard() {
    let (mut publisher, fixture) = live_feed(Publisher::new(Form::FourFrames));
    publisher.mute(true);
    fixture.shows(&mut publisher, |status| {
        status.silent && status.state == FeedState::Rebuilding
    });
    assert!(!fixture.notes.is_live());
    publisher.mute(false).publish(11);
    fixture.shows(&mut publisher, |status| {
        !status.silent && status.state == FeedState::Live
    });
    fixture.received_events(&mut publisher, "10, 11");
}

#[test]
fn a_doubted_feed_is_not_live_until_something_is_heard() {
    let (mut publisher, fixture) = live_feed(Publisher::without_replay());
    fixture.feeds.mark_suspect(WorkerId(1));
    publisher.await_subscriber();
    fixture.received_events(&mut publisher, "10, connection-lost");
    fixture.shows(&mut publisher, |status| status.silent && status.silences == 1);
    assert!(!fixture.notes.is_live());
    publisher.publish(11);
    fixture.shows(&mut publisher, |status| {
        !status.silent && status.state == FeedState::Live
    });
}

/// Returns an endpoint that is not bound. Other tests take any port of 127.0.0.1, so its address is another one on
/// Linux, where the loopback has more than one without any set-up.
fn free_endpoint() -> String {
    let host = match cfg!(target_os = "linux") {
        true => "127.0.0.79",
        false => "127.0.0.1",
    };
    let listener = TcpListener::bind((host, 0)).unwrap();
    format!("tcp://{}", listener.local_addr().unwrap())
}

#[test]
fn a_publisher_that_connects_is_followed_by_binding() {
    let endpoint = free_endpoint();
    let mut publisher = Publisher::connecting_to(&endpoint);
    publisher.lose(10);
    let fixture = Fixture::new();
    let spec = FeedSpec {
        endpoint: Endpoint::Bind(endpoint),
        ..publisher.spec()
    };
    fixture.feeds.replace(vec![spec], Vec::new());
    publisher.await_subscriber();
    publisher.publish(11);
    fixture.received_events(&mut publisher, "10, 11");
    fixture.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.complete
    });
}

#[test]
fn an_address_that_is_taken_is_bound_as_soon_as_it_is_free() {
    let endpoint = free_endpoint();
    let taken = TcpListener::bind(endpoint.trim_start_matches("tcp://")).unwrap();
    let mut publisher = Publisher::connecting_to(&endpoint);
    let fixture = Fixture::new();
    let spec = FeedSpec {
        endpoint: Endpoint::Bind(endpoint),
        ..publisher.spec()
    };
    fixture.feeds.replace(vec![spec], Vec::new());
    eventually(
        &mut publisher,
        || fixture.status().state == FeedState::Broken,
        || format!("{:?}", fixture.status()),
    );
    drop(taken);
    publisher.await_subscriber();
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
}
