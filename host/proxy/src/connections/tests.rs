//! Who gets a place, and who ends for it.

use futures_util::FutureExt;

use super::register::IDLE_FOR;
use super::*;

fn room(limit: usize) -> Arc<Room> {
    Room::new(RoomSpec {
        limit,
        key: "server.max-connections",
        taken: Gauge::default(),
        edge: EdgeMetrics::default(),
        stop: CancellationToken::new(),
    })
}

/// A place that is there at once.
fn placed(room: &Arc<Room>) -> TakenSeat {
    room.admit(None, None).now_or_never().unwrap().unwrap()
}

#[tokio::test]
async fn who_was_idle_for_longest_goes_first_and_who_is_busy_stays() {
    let room = room(3);
    let busy = placed(&room);
    let _turn = busy.turn();
    let early = placed(&room);
    let late = placed(&room);
    let at = |seat: &TakenSeat, ms| seat.standing.idle_since.store(ms, Ordering::Relaxed);
    at(&early, 5);
    at(&late, 9);
    let later = room.register.epoch() + 10 * IDLE_FOR;
    let gone = |expected: &TakenSeat| {
        let longest = room.register.longest_idle(later).unwrap();
        assert!(Arc::ptr_eq(&longest, &expected.standing));
        longest.displace();
        assert!(expected.is_given_up());
    };
    at(&late, 5);
    gone(&early);
    gone(&late);
    assert!(room.register.longest_idle(later).is_none());
    drop(early);
    assert_eq!(room.register.len(), 2);
}

#[tokio::test]
async fn between_two_requests_nobody_is_idle() {
    let room = room(1);
    let seat = placed(&room);
    let turn = seat.turn();
    assert_eq!(seat.deadline(), None);
    turn.must_end(room.register.epoch() + IDLE_FOR);
    assert_eq!(seat.deadline(), Some(room.register.epoch() + IDLE_FOR));
    drop(turn);
    assert_eq!(seat.deadline(), None);
    assert!(room.register.longest_idle(room.register.epoch()).is_none());
}

#[tokio::test]
async fn without_a_seat_health_is_answered_and_all_else_waits() {
    let room = room(1);
    let first = placed(&room);
    let _busy = first.turn();
    let second = placed(&room);
    assert_eq!(room.spec.taken.get(), 1);
    let _turn = second.turn();
    second.sit("/health").now_or_never().unwrap().unwrap();
    second.sit("/readyz").now_or_never().unwrap().unwrap();
    let mut sitting = Box::pin(second.sit("/v1/models"));
    assert!(sitting.as_mut().now_or_never().is_none());
    drop(first);
    sitting.await.unwrap();
    assert_eq!(room.spec.taken.get(), 1);
    drop(second);
    assert_eq!(room.spec.taken.get(), 0);
}

#[tokio::test]
async fn a_full_lobby_makes_room_for_the_next_connection() {
    let room = room(1);
    let _first = placed(&room);
    let lobby: Vec<TakenSeat> = (0..LOBBY).map(|_| placed(&room)).collect();
    // All but one ask for something.
    let turns: Vec<Turn> = lobby[1..].iter().map(TakenSeat::turn).collect();
    let later = Instant::now() + IDLE_FOR;
    let silent = room.register.longest_in_lobby(later).unwrap();
    assert!(Arc::ptr_eq(&silent, &lobby[0].standing));
    silent.displace();
    let waiting = room.register.longest_in_lobby(later).unwrap();
    assert!(Arc::ptr_eq(&waiting, &lobby[1].standing));
    waiting.displace();
    assert_eq!(lobby[1].sit("/v1/models").await, Err(NoSeat::Full));
    room.spec.stop.cancel();
    assert_eq!(lobby[2].sit("/v1/models").await, Err(NoSeat::Closing));
    drop(turns);
}

#[tokio::test]
async fn an_address_has_its_part_and_the_own_machine_all_unless_a_limit_is_set() {
    let room = room(8);
    let far = Some("192.0.2.1".parse().unwrap());
    let near = Some("127.0.0.1".parse().unwrap());
    let admit = |peer, limit| room.admit(peer, limit).now_or_never().unwrap();
    let two = [admit(far, None).unwrap(), admit(far, None).unwrap()];
    assert!(admit(far, None).is_none());
    assert!(admit(Some("192.0.2.2".parse().unwrap()), None).is_some());
    let three: Vec<_> = (0..3).map(|_| admit(near, None).unwrap()).collect();
    assert!(admit(near, Some(3)).is_none());
    // One that is idle ends for a new one of its address.
    let past = Instant::now().checked_sub(2 * IDLE_FOR);
    if past.is_some_and(|past| past > room.register.epoch()) {
        unreachable!("the room is new");
    }
    drop((two, three));
    assert!(admit(far, None).is_some());
}
