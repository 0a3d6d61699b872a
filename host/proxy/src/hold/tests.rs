//! Who is woken when, and what the queue is bounded by.

use std::pin::pin;

use futures_util::poll;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn queue() -> Arc<HoldQueue> {
    HoldQueue::new(Histogram::new([1.0]))
}

/// A place for at most `patience`, among `limit`.
fn enter(queue: &Arc<HoldQueue>, limit: usize, patience: Duration) -> Result<Ticket, QueueFull> {
    queue.enter(queue.turn(patience), limit)
}

fn tickets<const N: usize>(queue: &Arc<HoldQueue>) -> [Ticket; N] {
    std::array::from_fn(|_| enter(queue, N, LONG).unwrap())
}

fn hold(order: f64) -> Hold {
    Hold {
        order,
        ask_again_ms: 10_000,
    }
}

#[tokio::test]
async fn releases_wake_in_order_then_by_arrival() {
    let queue = queue();
    let [mut late, mut first, mut second] = tickets(&queue);
    let mut late = pin!(late.wait(hold(5.0), 0));
    let mut second = pin!(second.wait(hold(1.0), 0));
    let mut first = pin!(first.wait(hold(1.0), 0));
    assert!(poll!(&mut late).is_pending());
    assert!(poll!(&mut second).is_pending());
    assert!(poll!(&mut first).is_pending());
    queue.release();
    assert!(poll!(&mut late).is_pending());
    assert!(poll!(&mut second).is_pending());
    assert!(poll!(&mut first).is_ready());
    queue.release();
    assert!(poll!(&mut second).is_ready());
    assert!(poll!(&mut late).is_pending());
}

#[tokio::test]
async fn a_release_while_the_policy_was_asked_is_not_missed() {
    let queue = queue();
    let seen = queue.releases();
    queue.release();
    let [mut ticket] = tickets(&queue);
    assert_eq!(ticket.wait(hold(0.0), seen).await, Ok(()));
    assert!(queue.waiting().is_empty());
}

#[tokio::test]
async fn a_wake_of_one_who_left_goes_to_the_next() {
    let queue = queue();
    let [mut gone, mut next] = tickets(&queue);
    let mut next = pin!(next.wait(hold(1.0), 0));
    {
        let mut waits = pin!(gone.wait(hold(0.0), 0));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut next).is_pending());
        queue.release();
    }
    drop(gone);
    assert!(poll!(&mut next).is_ready());
}

#[tokio::test]
async fn a_wake_of_one_who_ends_unsent_goes_to_the_next_and_of_one_sent_does_not() {
    for (sent, wakes_next) in [(false, true), (true, false)] {
        let queue = queue();
        let [mut woken, mut next] = tickets(&queue);
        let mut next = pin!(next.wait(hold(1.0), 0));
        {
            let mut waits = pin!(woken.wait(hold(0.0), 0));
            assert!(poll!(&mut waits).is_pending());
            assert!(poll!(&mut next).is_pending());
            queue.release();
            assert!(poll!(&mut waits).is_ready());
        }
        if sent {
            woken.sent();
        } else {
            drop(woken);
        }
        assert_eq!(poll!(&mut next).is_ready(), wakes_next, "sent: {sent}");
    }
}

#[tokio::test]
async fn a_wake_of_one_held_again_goes_round_once() {
    let queue = queue();
    let [mut first, mut second] = tickets(&queue);
    {
        let mut waits = pin!(first.wait(hold(0.0), 0));
        let mut other = pin!(second.wait(hold(1.0), 0));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut other).is_pending());
        queue.release();
        assert!(poll!(&mut waits).is_ready());
        assert!(poll!(&mut other).is_pending());
    }
    // The second gave up its entry above and takes a new one, as before the release.
    let mut other = pin!(second.wait(hold(1.0), 1));
    assert!(poll!(&mut other).is_pending(), "asked since the release");
    let mut again = pin!(first.wait(hold(2.0), 1));
    assert!(poll!(&mut again).is_pending());
    assert!(poll!(&mut other).is_pending(), "nobody is left to be asked");
    queue.release();
    assert!(poll!(&mut other).is_ready(), "the next release begins anew");
}

#[tokio::test]
async fn a_wake_of_one_held_again_goes_to_the_next() {
    let queue = queue();
    let [mut first, mut second] = tickets(&queue);
    let mut other = pin!(second.wait(hold(1.0), 0));
    {
        let mut waits = pin!(first.wait(hold(0.0), 0));
        assert!(poll!(&mut waits).is_pending());
        assert!(poll!(&mut other).is_pending());
        queue.release();
        assert!(poll!(&mut waits).is_ready());
    }
    let mut again = pin!(first.wait(hold(0.0), 1));
    assert!(poll!(&mut again).is_pending());
    assert!(poll!(&mut other).is_ready());
}

#[tokio::test]
async fn the_queue_is_bounded_in_length_and_time() {
    let queue = queue();
    let mut ticket = enter(&queue, 1, Duration::ZERO).unwrap();
    assert_eq!(enter(&queue, 1, LONG).unwrap_err(), QueueFull);
    assert_eq!(ticket.wait(hold(0.0), 0).await, Err(QueueTimeout));
    drop(ticket);
    assert_eq!(queue.len(), 0);
    let mut ticket = enter(&queue, 1, LONG).unwrap();
    let soon = Hold {
        order: 0.0,
        ask_again_ms: 1,
    };
    assert_eq!(
        ticket.wait(soon, 0).await,
        Ok(()),
        "asked again when the time is up"
    );
}

#[tokio::test]
async fn a_turn_ends_at_its_deadline_however_often_the_queue_is_entered() {
    let queue = queue();
    let turn = queue.turn(Duration::ZERO);
    queue.enter(turn, 1).unwrap().sent();
    let mut again = queue.enter(turn, 1).unwrap();
    assert_eq!(again.wait(hold(0.0), 0).await, Err(QueueTimeout));
}
