//! Following a publisher that behaves as vLLM's and SGLang's do, or loses messages.

use std::net::TcpListener;

use kv_feed::{Endpoint, FeedError, FeedSpec, FeedState, KvFeeds, MAX_FEEDS};
use routing::DpRank;

use crate::fixture::{Fixture, eventually};
use crate::publisher::{Form, Publisher};

#[test]
fn passes_on_live_events_with_their_rank() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10).publish_as(Some(3), 11);
    fixture.received_events(&mut publisher, "10, rank 3: 11");
    fixture.shows(&mut publisher, |status| {
        status.state == FeedState::Live && status.last_seq == Some(1)
    });
    let status = fixture.status();
    assert_eq!(
        (status.batches, status.events, status.gaps, status.replays),
        (2, 2, 0, 0)
    );
    assert!(status.complete);
}

#[test]
fn the_sink_knows_if_its_state_is_current() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.shows(&mut publisher, |status| status.state == FeedState::Live);
    let live = || fixture.notes.is_live();
    assert!(live());
    fixture.feeds.replace(Vec::new(), Vec::new());
    eventually(&mut publisher, || !live(), || "still live".to_owned());
}

#[test]
fn takes_the_rank_from_the_spec_where_the_batch_names_none() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::new();
    fixture.feeds.replace(
        vec![FeedSpec {
            rank: Some(DpRank(5)),
            ..publisher.spec()
        }],
        Vec::new(),
    );
    publisher.await_subscriber();
    publisher.publish_as(None, 10).publish_as(Some(2), 11);
    fixture.received_events(&mut publisher, "rank 5: 10, rank 2: 11");
}

/// Returns a batch with a store of an adapter, as an engine reports it.
fn of_adapter(hash: u64, id: Option<i64>, name: Option<&str>) -> Vec<u8> {
    let event = ("BlockStored", [hash], None::<u64>, [7], 1, id, "GPU", name);
    rmp_serde::to_vec(&(1.5, [event], None::<u16>)).unwrap()
}

#[test]
fn blocks_without_an_adapters_name_are_of_the_feeds_adapter() {
    for (adapter, expected) in [
        (None, "10, 11 of number 3, 12 of other"),
        (Some("sql"), "10 of sql, 11 of sql, 12 of other"),
    ] {
        let mut publisher = Publisher::without_replay();
        let fixture = Fixture::new();
        let spec = FeedSpec {
            adapter: adapter.map(Into::into),
            ..publisher.spec()
        };
        fixture.feeds.replace(vec![spec], Vec::new());
        publisher.await_subscriber();
        publisher.publish_payload(&of_adapter(10, None, None));
        publisher.publish_payload(&of_adapter(11, Some(3), None));
        publisher.publish_payload(&of_adapter(12, Some(3), Some("other")));
        fixture.received_events(&mut publisher, expected);
    }
}

#[test]
fn a_late_feed_learns_the_past_by_replay_in_both_forms() {
    for form in [Form::ThreeFrames, Form::FourFrames] {
        let mut publisher = Publisher::new(form);
        publisher.publish(10).publish(11);
        let fixture = Fixture::following(&mut publisher);
        fixture.received_events(&mut publisher, "10, 11");
        publisher.publish(12);
        fixture.received_events(&mut publisher, "10, 11, 12");
        fixture.shows(&mut publisher, |status| {
            status.state == FeedState::Live && status.complete
        });
        assert_eq!(fixture.status().resets, 0);
    }
}

#[test]
fn a_gap_is_healed_by_replay() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    publisher.lose(11).lose(12).publish(13);
    fixture.received_events(&mut publisher, "10, 11, 12, 13");
    fixture.shows(&mut publisher, |status| {
        status.gaps == 1 && status.state == FeedState::Live && status.complete
    });
}

#[test]
fn a_gap_without_replay_resets_the_cache() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10).publish_as(Some(1), 11);
    fixture.received_events(&mut publisher, "10, rank 1: 11");
    publisher.lose(12).publish(13);
    fixture.received_events(
        &mut publisher,
        "10, rank 1: 11, gap-without-replay, rank 1: gap-without-replay, 13",
    );
    fixture.shows(&mut publisher, |status| !status.complete && status.resets == 2);
}

#[test]
fn a_gap_that_the_publisher_has_forgotten_resets_the_cache() {
    let mut publisher = Publisher::new(Form::ThreeFrames);
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    publisher.lose(11).lose(12).forget(2).publish(13);
    fixture.received_events(&mut publisher, "10, gap-not-replayed, 12, 13");
    fixture.shows(&mut publisher, |status| {
        status.state == FeedState::Live && !status.complete
    });
}

#[test]
fn a_restarted_publisher_resets_the_cache() {
    let mut publisher = Publisher::new(Form::FourFrames);
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10).publish(11);
    fixture.received_events(&mut publisher, "10, 11");
    publisher.start_anew().publish(20).publish(21);
    fixture.received_events(&mut publisher, "10, 11, restarted, 20, 21");
    publisher.start_anew().lose(30).publish(31);
    fixture.received_events(&mut publisher, "10, 11, restarted, 20, 21, restarted, 30, 31");
    fixture.shows(&mut publisher, |status| status.restarts == 2 && status.complete);
}

#[test]
fn garbage_is_counted_and_only_what_may_hide_removals_resets() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher
        .publish(10)
        .send_frames(&[b"garbage"])
        .send_frames(&[b"", b"short", b"x"])
        .publish(11);
    fixture.received_events(&mut publisher, "10, 11");
    publisher.publish_payload(b"no batch").publish(12);
    fixture.received_events(&mut publisher, "10, 11, undecodable, 12");
    fixture.shows(&mut publisher, |status| {
        status.rejected_messages == 3 && status.last_seq == Some(3)
    });
}

#[test]
fn a_feed_is_known_from_after_a_message_that_emptied_it() {
    for (unreadable, notes) in [
        (&b"no batch"[..], "10, 11, undecodable, 12"),
        // A removal of blocks without a readable hash.
        (&rejected_removal(), "10, 11, undecodable, 12"),
    ] {
        let mut publisher = Publisher::new(Form::FourFrames);
        let live = Fixture::following(&mut publisher);
        publisher
            .publish(10)
            .publish(11)
            .publish_payload(unreadable)
            .publish(12);
        let late = Fixture::following(&mut publisher);
        for fixture in [&live, &late] {
            fixture.received_events(&mut publisher, notes);
            fixture.shows(&mut publisher, |status| {
                status.state == FeedState::Live && status.known_from == Some(3) && !status.complete
            });
        }
        publisher.start_anew().publish(20);
        for fixture in [&live, &late] {
            fixture.shows(&mut publisher, |status| status.restarts == 1 && status.complete);
        }
    }
}

fn rejected_removal() -> Vec<u8> {
    rmp_serde::to_vec(&(1.5, [("BlockRemoved", [0.5])], 0)).unwrap()
}

#[test]
fn messages_of_other_topics_are_ignored() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::new();
    fixture.feeds.replace(
        vec![FeedSpec {
            topic: "kv".to_owned(),
            ..publisher.spec()
        }],
        Vec::new(),
    );
    publisher.await_subscriber();
    publisher.send_frames(&[b"load", &[0; 8], b"x"]).publish(10);
    fixture.received_events(&mut publisher, "10");
    assert_eq!(fixture.status().rejected_messages, 0);
}

#[test]
fn setting_the_same_feed_again_changes_nothing() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    fixture
        .feeds
        .replace(vec![publisher.spec(), publisher.spec()], Vec::new());
    publisher.publish(11);
    fixture.received_events(&mut publisher, "10, 11");
    assert_eq!(fixture.feeds.status().len(), 1);
    fixture.shows(&mut publisher, |status| status.batches == 2);
}

#[test]
fn a_changed_endpoint_resets_the_cache_and_follows_the_new_publisher() {
    let mut old = Publisher::without_replay();
    let fixture = Fixture::following(&mut old);
    old.publish(10);
    fixture.received_events(&mut old, "10");
    let mut new = Publisher::new(Form::ThreeFrames);
    new.publish(20);
    fixture.feeds.replace(vec![new.spec()], Vec::new());
    new.await_subscriber();
    fixture.received_events(&mut new, "10, feed-removed, 20");
    old.publish(11);
    new.publish(21);
    fixture.received_events(&mut new, "10, feed-removed, 20, 21");
}

#[test]
fn a_feed_taken_away_resets_the_cache_and_is_gone() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::following(&mut publisher);
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    fixture.feeds.replace(Vec::new(), Vec::new());
    fixture.received_events(&mut publisher, "10, feed-removed");
    assert_eq!(fixture.feeds.status(), []);
}

#[test]
fn a_feed_whose_publisher_is_not_there_waits_and_a_wrong_endpoint_is_broken() {
    let mut publisher = Publisher::without_replay();
    let fixture = Fixture::new();
    let absent = FeedSpec {
        endpoint: Endpoint::Connect("tcp://127.0.0.1:1".to_owned()),
        ..publisher.spec()
    };
    let wrong = FeedSpec {
        endpoint: Endpoint::Connect("nonsense".to_owned()),
        ..publisher.spec()
    };
    fixture
        .feeds
        .replace(vec![absent, wrong, publisher.spec()], Vec::new());
    publisher.await_subscriber();
    publisher.publish(10);
    fixture.received_events(&mut publisher, "10");
    let states: Vec<FeedState> = fixture.feeds.status().iter().map(|status| status.state).collect();
    assert_eq!(states[..2], [FeedState::Connecting, FeedState::Broken]);
}

#[test]
fn a_publisher_is_awaited_once_an_attempt_to_connect_has_failed() {
    let mut publisher = Publisher::without_replay();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let fixture = Fixture::new();
    let at = |address: String| FeedSpec {
        endpoint: Endpoint::Connect(address),
        ..publisher.spec()
    };
    let feeds = [
        at(format!("tcp://{}", deaf.local_addr().unwrap())),
        at("tcp://127.0.0.1:1".to_owned()),
    ];
    fixture.feeds.replace(feeds.to_vec(), Vec::new());
    let _connection = deaf.accept().unwrap();
    eventually(
        &mut publisher,
        || fixture.feeds.status()[1].reason.is_awaited,
        || format!("{:?}", fixture.feeds.status()),
    );
    assert!(!fixture.feeds.status()[0].reason.is_awaited);
}

#[test]
fn refuses_more_feeds_than_sockets() {
    assert!(KvFeeds::check(MAX_FEEDS).is_ok());
    let refused = KvFeeds::check(MAX_FEEDS + 1).unwrap_err();
    assert!(matches!(refused, FeedError::TooMany { wanted } if wanted == MAX_FEEDS + 1));
}

#[test]
fn many_feeds_share_one_thread() {
    let mut publishers: Vec<Publisher> = (0..20).map(|_| Publisher::new(Form::FourFrames)).collect();
    let fixture = Fixture::new();
    fixture
        .feeds
        .replace(publishers.iter().map(Publisher::spec).collect(), Vec::new());
    for (hash, publisher) in (0..).zip(&mut publishers) {
        publisher.await_subscriber();
        publisher.publish(hash);
    }
    for publisher in &mut publishers {
        let endpoint = publisher.spec().endpoint.address().to_owned();
        let status = || {
            fixture
                .feeds
                .status()
                .into_iter()
                .find(|status| status.endpoint == endpoint)
                .unwrap()
        };
        eventually(
            publisher,
            || status().batches == 1 && status().complete,
            || format!("{:?}", status()),
        );
    }
    assert_eq!(fixture.notes.threads(), 1);
}
