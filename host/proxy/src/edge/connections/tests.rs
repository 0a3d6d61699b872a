//! Tests of connection slots and of the closing of idle connections.

use futures_util::FutureExt;

use super::register::IDLE_FOR;
use super::*;

fn room(limit: usize) -> Arc<ConnectionLimiter> {
    ConnectionLimiter::new(ConnectionLimiterSpec {
        limit,
        key: "server.max-connections",
        taken: Gauge::default(),
        edge: EdgeMetrics::default(),
        memory: Arc::default(),
        stop: CancellationToken::new(),
    })
}

#[tokio::test]
async fn where_memory_is_short_connections_begin_in_the_lobby_and_idle_ones_end() {
    let short = ConnectionLimiter::new(ConnectionLimiterSpec {
        limit: 2,
        key: "server.max-connections",
        taken: Gauge::default(),
        edge: EdgeMetrics::default(),
        memory: Arc::new(Memory::at(90)),
        stop: CancellationToken::new(),
    });
    let seat = placed(&short);
    assert!(!seat.is_seated());
    // A request gets its slot.
    seat.sit("/v1/models").now_or_never().unwrap().unwrap();
    assert!(seat.is_seated());

    let saving = room(2);
    let (busy, idle) = (placed(&saving), placed(&saving));
    let _turn = busy.turn();
    assert!(saving.register.all_idle(saving.register.epoch()).is_empty());
    let later = saving.register.epoch() + 10 * IDLE_FOR;
    let ended = saving.register.all_idle(later);
    assert!(ended.len() == 1 && Arc::ptr_eq(&ended[0], &idle.standing));
}

/// Admits a connection that needs no wait.
fn placed(room: &Arc<ConnectionLimiter>) -> ConnectionSlot {
    room.admit(None, AddressLimit::Part)
        .now_or_never()
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn who_was_idle_for_longest_goes_first_and_who_is_busy_stays() {
    let room = room(3);
    let busy = placed(&room);
    let _turn = busy.turn();
    let early = placed(&room);
    let late = placed(&room);
    let at = |seat: &ConnectionSlot, ms| seat.standing.idle_since.store(ms, Ordering::Relaxed);
    at(&early, 5);
    at(&late, 9);
    let later = room.register.epoch() + 10 * IDLE_FOR;
    let gone = |expected: &ConnectionSlot| {
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
async fn between_two_requests_no_connection_is_idle() {
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
    let lobby: Vec<ConnectionSlot> = (0..LOBBY).map(|_| placed(&room)).collect();
    // All connections but one have a request in progress.
    let turns: Vec<RequestTurn> = lobby[1..].iter().map(ConnectionSlot::turn).collect();
    let later = Instant::now() + IDLE_FOR;
    let silent = room.register.longest_in_lobby(later).unwrap();
    assert!(Arc::ptr_eq(&silent, &lobby[0].standing));
    silent.displace();
    let waiting = room.register.longest_in_lobby(later).unwrap();
    assert!(Arc::ptr_eq(&waiting, &lobby[1].standing));
    waiting.displace();
    assert_eq!(lobby[1].sit("/v1/models").await, Err(NoConnectionSlot::Full));
    room.spec.stop.cancel();
    assert_eq!(lobby[2].sit("/v1/models").await, Err(NoConnectionSlot::Closing));
    drop(turns);
}

#[tokio::test]
async fn an_address_has_its_part_and_the_own_machine_all_unless_a_limit_is_set() {
    let room = room(8);
    let far = Some("192.0.2.1".parse().unwrap());
    let near = Some("127.0.0.1".parse().unwrap());
    let admit = |peer, limit| room.admit(peer, limit).now_or_never().unwrap();
    let part = AddressLimit::Part;
    let two = [admit(far, part).unwrap(), admit(far, part).unwrap()];
    assert!(admit(far, part).is_none());
    assert!(admit(Some("192.0.2.2".parse().unwrap()), part).is_some());
    let three: Vec<_> = (0..3).map(|_| admit(near, part).unwrap()).collect();
    assert!(admit(near, AddressLimit::Of(3)).is_none());
    // An idle connection is closed for a new one of its address.
    let past = Instant::now().checked_sub(2 * IDLE_FOR);
    if past.is_some_and(|past| past > room.register.epoch()) {
        unreachable!("the room is new");
    }
    drop((two, three));
    assert!(admit(far, part).is_some());
}

#[tokio::test]
async fn of_a_front_the_clients_are_limited_and_not_the_front() {
    let room = room(16);
    let front = Some("10.0.0.1".parse().unwrap());
    let admit = |peer, limit| room.admit(peer, limit).now_or_never().unwrap();
    let seats: Vec<ConnectionSlot> = (0..9)
        .map(|_| admit(front, AddressLimit::Front).unwrap())
        .collect();
    let client = "192.0.2.1".parse().unwrap();
    let limit = AddressLimit::Of(2);
    let forward = |at: usize, limit| seats[at].forwarded(client, limit);
    let first = forward(0, limit).unwrap();
    // The client's own connection counts too.
    let own = admit(Some(client), limit).unwrap();
    assert!(forward(1, limit).is_none());
    assert!(seats[1].forwarded("192.0.2.2".parse().unwrap(), limit).is_some());
    drop(first);
    let mut turn = seats[2].turn();
    turn.is_of(forward(2, limit));
    assert!(forward(3, limit).is_none());
    drop((turn, own));
    assert!(forward(3, limit).is_some());
    // Without an explicit limit, an address has a quarter.
    let all: Vec<_> = (0..4).map(|_| forward(4, AddressLimit::Part).unwrap()).collect();
    assert!(forward(5, AddressLimit::Part).is_none());
    drop(all);
}

#[tokio::test]
async fn while_slots_are_free_no_idle_connection_is_closed_for_another_request() {
    let room = idle_room(8);
    let (idle, busy) = (placed(&room), Arc::new(placed(&room)));
    let _turn = busy.turn();
    past_idle(&idle);
    let beside = busy.sit_beside("/v1/models").now_or_never().unwrap().unwrap();
    assert!(beside.is_some());
    assert!(!idle.standing.stop.is_cancelled());
    // The last slots are taken.
    let rest: Vec<ConnectionSlot> = (0..5).map(|_| placed(&room)).collect();
    let _turns: Vec<RequestTurn> = rest.iter().map(ConnectionSlot::turn).collect();
    let mut sitting = Box::pin(busy.sit_beside("/v1/models"));
    assert!(sitting.as_mut().now_or_never().is_none());
    assert!(idle.standing.stop.is_cancelled());
    drop(idle);
    assert!(sitting.await.unwrap().is_some());
}

/// Makes a room whose epoch is long past, so that connections can have been idle.
fn idle_room(limit: usize) -> Arc<ConnectionLimiter> {
    let mut room = Arc::into_inner(room(limit)).unwrap();
    room.register = Register::since(Instant::now().checked_sub(10 * IDLE_FOR).unwrap());
    Arc::new(room)
}

/// Makes a connection one that has been idle since the epoch.
fn past_idle(seat: &ConnectionSlot) {
    seat.standing.idle_since.store(1, Ordering::Relaxed);
}

#[tokio::test]
async fn after_a_search_in_vain_waiting_requests_do_not_search_for_a_while() {
    let room = room(2);
    let seat = placed(&room);
    let turn = seat.turn();
    let later = room.register.epoch() + 10 * IDLE_FOR;
    assert!(room.register.seek_idle(later, LOOK_EVERY).is_none());
    drop(turn);
    let soon = later + LOOK_EVERY / 2;
    assert!(room.register.seek_idle(soon, LOOK_EVERY).is_none());
    assert!(room.register.seek_idle(later + LOOK_EVERY, LOOK_EVERY).is_some());
    // A search that finds one is followed by another.
    assert!(room.register.seek_idle(later + LOOK_EVERY, LOOK_EVERY).is_some());
}
