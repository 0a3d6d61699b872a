//! Tests of connection slots and of the closing of idle connections.

use futures_util::FutureExt;

use super::register::IDLE_FOR;
use super::*;

fn limiter(limit: usize) -> Arc<ConnectionLimiter> {
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
async fn new_connections_wait_in_the_overflow_area_and_idle_ones_end_if_memory_is_short() {
    let short = ConnectionLimiter::new(ConnectionLimiterSpec {
        limit: 2,
        key: "server.max-connections",
        taken: Gauge::default(),
        edge: EdgeMetrics::default(),
        memory: Arc::new(Memory::at(90)),
        stop: CancellationToken::new(),
    });
    let slot = placed(&short);
    assert!(!slot.is_acquired());
    // A request gets its slot.
    slot.acquire("/v1/models").now_or_never().unwrap().unwrap();
    assert!(slot.is_acquired());

    let saving = limiter(2);
    let (busy, idle) = (placed(&saving), placed(&saving));
    let _active = busy.begin_request();
    assert!(saving.register.all_idle(saving.register.epoch()).is_empty());
    let later = saving.register.epoch() + 10 * IDLE_FOR;
    let ended = saving.register.all_idle(later);
    assert!(ended.len() == 1 && Arc::ptr_eq(&ended[0], &idle.state));
}

/// Admits a connection that needs no wait.
fn placed(limiter: &Arc<ConnectionLimiter>) -> ConnectionSlot {
    limiter
        .admit(None, AddressLimit::Part)
        .now_or_never()
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed_first_and_busy_ones_stay() {
    let limiter = limiter(3);
    let busy = placed(&limiter);
    let _active = busy.begin_request();
    let early = placed(&limiter);
    let late = placed(&limiter);
    let at = |slot: &ConnectionSlot, ms| slot.state.idle_since.store(ms, Ordering::Relaxed);
    at(&early, 5);
    at(&late, 9);
    let later = limiter.register.epoch() + 10 * IDLE_FOR;
    let gone = |expected: &ConnectionSlot| {
        let longest = limiter.register.longest_idle(later).unwrap();
        assert!(Arc::ptr_eq(&longest, &expected.state));
        longest.displace();
        assert!(expected.must_close());
    };
    at(&late, 5);
    gone(&early);
    gone(&late);
    assert!(limiter.register.longest_idle(later).is_none());
    drop(early);
    assert_eq!(limiter.register.len(), 2);
}

#[tokio::test]
async fn between_two_requests_no_connection_is_idle() {
    let limiter = limiter(1);
    let slot = placed(&limiter);
    let active = slot.begin_request();
    assert_eq!(slot.deadline(), None);
    active.must_end(limiter.register.epoch() + IDLE_FOR);
    assert_eq!(slot.deadline(), Some(limiter.register.epoch() + IDLE_FOR));
    drop(active);
    assert_eq!(slot.deadline(), None);
    assert!(limiter.register.longest_idle(limiter.register.epoch()).is_none());
}

#[tokio::test]
async fn without_a_slot_health_is_answered_and_all_else_waits() {
    let limiter = limiter(1);
    let first = placed(&limiter);
    let _busy = first.begin_request();
    let second = placed(&limiter);
    assert_eq!(limiter.spec.taken.get(), 1);
    let _active = second.begin_request();
    second.acquire("/health").now_or_never().unwrap().unwrap();
    second.acquire("/readyz").now_or_never().unwrap().unwrap();
    let mut acquiring = Box::pin(second.acquire("/v1/models"));
    assert!(acquiring.as_mut().now_or_never().is_none());
    drop(first);
    acquiring.await.unwrap();
    assert_eq!(limiter.spec.taken.get(), 1);
    drop(second);
    assert_eq!(limiter.spec.taken.get(), 0);
}

#[tokio::test]
async fn a_full_overflow_area_makes_room_for_the_next_connection() {
    let limiter = limiter(1);
    let _first = placed(&limiter);
    let overflow: Vec<ConnectionSlot> = (0..OVERFLOW_CONNECTIONS).map(|_| placed(&limiter)).collect();
    // All connections but one have a request in progress.
    let requests: Vec<ActiveRequest> = overflow[1..].iter().map(ConnectionSlot::begin_request).collect();
    let later = Instant::now() + IDLE_FOR;
    let silent = limiter.register.oldest_in_overflow(later).unwrap();
    assert!(Arc::ptr_eq(&silent, &overflow[0].state));
    silent.displace();
    let waiting = limiter.register.oldest_in_overflow(later).unwrap();
    assert!(Arc::ptr_eq(&waiting, &overflow[1].state));
    waiting.displace();
    assert_eq!(
        overflow[1].acquire("/v1/models").await,
        Err(NoConnectionSlot::Full)
    );
    limiter.spec.stop.cancel();
    assert_eq!(
        overflow[2].acquire("/v1/models").await,
        Err(NoConnectionSlot::Closing)
    );
    drop(requests);
}

#[tokio::test]
async fn an_address_has_its_part_and_the_own_machine_all_unless_a_limit_is_set() {
    let limiter = idle_limiter(8);
    let far = Some("192.0.2.1".parse().unwrap());
    let near = Some("127.0.0.1".parse().unwrap());
    let admit = |peer, limit| limiter.admit(peer, limit).now_or_never().unwrap();
    let part = AddressLimit::Part;
    let two = [admit(far, part).unwrap(), admit(far, part).unwrap()];
    let [first, _second] = two.each_ref().map(ConnectionSlot::begin_request);
    assert!(admit(far, part).is_none());
    assert!(admit(Some("192.0.2.2".parse().unwrap()), part).is_some());
    let three: Vec<_> = (0..3).map(|_| admit(near, part).unwrap()).collect();
    let _requests: Vec<_> = three.iter().map(ConnectionSlot::begin_request).collect();
    assert!(admit(near, AddressLimit::Of(3)).is_none());
    // An idle connection is closed for a new one of its address.
    drop(first);
    past_idle(&two[0]);
    assert!(admit(far, part).is_some());
    assert!(two[0].state.stop.is_cancelled() && !two[1].state.stop.is_cancelled());
}

#[tokio::test]
async fn of_a_front_the_clients_are_limited_and_not_the_front() {
    let limiter = limiter(16);
    let front = Some("10.0.0.1".parse().unwrap());
    let admit = |peer, limit| limiter.admit(peer, limit).now_or_never().unwrap();
    let slots: Vec<ConnectionSlot> = (0..9)
        .map(|_| admit(front, AddressLimit::Front).unwrap())
        .collect();
    let client = "192.0.2.1".parse().unwrap();
    let limit = AddressLimit::Of(2);
    let forward = |at: usize, limit| slots[at].forwarded(client, limit);
    let first = forward(0, limit).unwrap();
    // The client's own connection counts too.
    let own = admit(Some(client), limit).unwrap();
    assert!(forward(1, limit).is_none());
    assert!(slots[1].forwarded("192.0.2.2".parse().unwrap(), limit).is_some());
    drop(first);
    let mut active = slots[2].begin_request();
    active.is_of(forward(2, limit));
    assert!(forward(3, limit).is_none());
    drop((active, own));
    assert!(forward(3, limit).is_some());
    // Without an explicit limit, an address has a quarter.
    let all: Vec<_> = (0..4).map(|_| forward(4, AddressLimit::Part).unwrap()).collect();
    assert!(forward(5, AddressLimit::Part).is_none());
    drop(all);
}

#[tokio::test]
async fn while_slots_are_free_no_idle_connection_is_closed_for_another_request() {
    let limiter = idle_limiter(8);
    let (idle, busy) = (placed(&limiter), Arc::new(placed(&limiter)));
    let _active = busy.begin_request();
    past_idle(&idle);
    let stream_slot = busy
        .acquire_for_stream("/v1/models")
        .now_or_never()
        .unwrap()
        .unwrap();
    assert!(stream_slot.is_some());
    assert!(!idle.state.stop.is_cancelled());
    // The last slots are taken.
    let rest: Vec<ConnectionSlot> = (0..5).map(|_| placed(&limiter)).collect();
    let _requests: Vec<ActiveRequest> = rest.iter().map(ConnectionSlot::begin_request).collect();
    let mut acquiring = Box::pin(busy.acquire_for_stream("/v1/models"));
    assert!(acquiring.as_mut().now_or_never().is_none());
    assert!(idle.state.stop.is_cancelled());
    drop(idle);
    assert!(acquiring.await.unwrap().is_some());
}

/// Makes a limiter whose epoch is long past, so that connections can have been idle.
fn idle_limiter(limit: usize) -> Arc<ConnectionLimiter> {
    let mut limiter = Arc::into_inner(limiter(limit)).unwrap();
    limiter.register = Register::since(Instant::now().checked_sub(10 * IDLE_FOR).unwrap());
    Arc::new(limiter)
}

/// Makes a connection one that has been idle since the epoch.
fn past_idle(slot: &ConnectionSlot) {
    slot.state.idle_since.store(1, Ordering::Relaxed);
}

#[tokio::test]
async fn after_a_search_in_vain_waiting_requests_do_not_search_for_a_while() {
    let limiter = limiter(2);
    let slot = placed(&limiter);
    let active = slot.begin_request();
    let later = limiter.register.epoch() + 10 * IDLE_FOR;
    assert!(limiter.register.seek_idle(later, LOOK_EVERY).is_none());
    drop(active);
    let soon = later + LOOK_EVERY / 2;
    assert!(limiter.register.seek_idle(soon, LOOK_EVERY).is_none());
    assert!(
        limiter
            .register
            .seek_idle(later + LOOK_EVERY, LOOK_EVERY)
            .is_some()
    );
    // A search that finds one is followed by another.
    assert!(
        limiter
            .register
            .seek_idle(later + LOOK_EVERY, LOOK_EVERY)
            .is_some()
    );
}
