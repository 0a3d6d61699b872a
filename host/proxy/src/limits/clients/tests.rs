//! Tests of clients over reloads, and of the usage that requests leave behind.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use inference_api::Tail;

use super::*;
use crate::base::label::Outcome;
use crate::base::reply::{Limited, Refusal};

fn spec(name: &str, limits: ClientLimits) -> ClientSpec {
    ClientSpec {
        name: name.into(),
        keys: vec![KeyHash::of(name.as_bytes())],
        models: vec!["llama-*".to_owned()],
        tenant: name.into(),
        priority: 0,
        weight: 1.0,
        may_set: EngineFields::default(),
        limits,
    }
}

fn limits(requests: u32, tokens: u32, concurrent: u32) -> ClientLimits {
    ClientLimits {
        requests: NonZeroU32::new(requests),
        tokens: NonZeroU32::new(tokens),
        concurrent: NonZeroU32::new(concurrent),
    }
}

/// Creates clients whose clock stands still: its epoch is tomorrow.
fn clients(previous: Option<&Clients>, specs: Vec<ClientSpec>) -> Clients {
    let metrics = ClientFamilies::default();
    let mut empty = Clients::next(None, vec![], &metrics);
    empty.clock.epoch += Duration::from_hours(24);
    Clients::next(Some(previous.unwrap_or(&empty)), specs, &metrics)
}

fn enter(clients: &Clients, key: &str) -> Result<Option<RateLimitGuard>, Refusal> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::try_from(format!("Bearer {key}")).unwrap();
    headers.insert(AUTHORIZATION, value);
    clients.enter(&mut headers).reservation
}

#[track_caller]
fn reservation(clients: &Clients, key: &str) -> RateLimitGuard {
    enter(clients, key).unwrap().unwrap()
}

#[test]
fn without_clients_no_key_is_needed_and_every_header_stays() {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_static("theirs"));
    let entry = clients(None, vec![]).enter(&mut headers);
    assert!(entry.client.is_none() && matches!(entry.reservation, Ok(None)));
    assert_eq!(headers.len(), 1);
}

#[test]
fn only_a_known_key_comes_in() {
    let clients = clients(None, vec![spec("a", ClientLimits::default())]);
    assert_eq!(&*reservation(&clients, "a").client().name, "a");
    assert!(matches!(enter(&clients, "b"), Err(Refusal::WrongKey)));
    let entry = clients.enter(&mut HeaderMap::new());
    assert!(matches!(entry.reservation, Err(Refusal::NoKey)));
    assert_eq!(
        (clients.unknown.no_key.get(), clients.unknown.wrong_key.get()),
        (1, 1)
    );
}

#[test]
fn a_model_that_is_not_its_own_does_not_exist_for_it() {
    let clients = clients(None, vec![spec("a", ClientLimits::default())]);
    let reservation = reservation(&clients, "a");
    assert!(reservation.check_model("llama-8b").is_ok());
    assert!(matches!(
        reservation.check_model("qwen"),
        Err(Refusal::ModelNotFound { .. })
    ));
}

#[test]
fn rate_limit_use_is_kept_over_a_reload() {
    let before = clients(None, vec![spec("a", limits(1, 0, 0)), spec("b", limits(1, 0, 0))]);
    drop(reservation(&before, "a"));
    let after = clients(Some(&before), vec![spec("a", limits(1, 0, 0))]);
    assert!(matches!(
        enter(&after, "a"),
        Err(Refusal::Limited(Limited::Requests { limit: 1, .. }))
    ));
    assert_eq!(before.gone(&after).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_seat_is_free_again_when_its_request_is_over() {
    let clients = clients(None, vec![spec("a", limits(0, 0, 1))]);
    let first = reservation(&clients, "a");
    assert!(matches!(
        enter(&clients, "a"),
        Err(Refusal::Limited(Limited::Concurrent { most: 1 }))
    ));
    drop(first);
    reservation(&clients, "a");
}

/// Returns the bound of a short body that sets `max_tokens` to 70,000.
fn bound() -> UsageBound {
    let body = br#"{"model":"llama-8b","prompt":"hi","max_tokens":35000,"n":2}"#;
    let peek = inference_api::peek(inference_api::Endpoint::Completions, body).unwrap();
    UsageBound::of(&peek, body)
}

/// Returns the tokens left of 1,000 after a request with 100 estimated tokens did `what`.
#[track_caller]
fn left(what: impl FnOnce(RateLimitGuard)) -> u64 {
    let clients = clients(None, vec![spec("a", limits(0, 1_000, 0))]);
    let mut reservation = reservation(&clients, "a");
    reservation.claim(100, bound()).unwrap();
    let client = Arc::clone(reservation.client());
    what(reservation);
    let rate = client.tokens().unwrap();
    client.ledger.tokens.level(rate, client.now()).left
}

#[test]
fn tokens_are_settled_by_what_is_known_of_them() {
    let mut tail = Tail::default();
    tail.push(br#"{"usage":{"prompt_tokens":250,"completion_tokens":50}}"#);
    let mut stream = Tail::default();
    stream.push(b"data: {}\n\ndata: {}\n\n");
    assert_eq!(
        left(|mut reservation| {
            reservation.answered(StatusCode::OK);
            reservation.seen(&tail);
        }),
        700,
    );
    assert_eq!(
        left(|mut reservation| {
            reservation.reconcile(200);
            reservation.answered(StatusCode::OK);
            reservation.seen(&stream);
        }),
        798,
    );
    assert_eq!(
        left(|mut reservation| reservation.answered(StatusCode::BAD_GATEWAY)),
        1_000
    );
    assert_eq!(left(drop), 1_000);
    assert_eq!(left(|reservation| reservation.end(Outcome::ClientLeft)), 900);
    assert_eq!(
        left(|reservation| reservation.end(Outcome::RequestTimeout)),
        1_000
    );
    assert_eq!(
        left(|mut reservation| {
            reservation.sent();
            reservation.end(Outcome::RequestTimeout);
        }),
        900,
        "a worker read the prompt",
    );
    assert_eq!(
        left(|mut reservation| {
            reservation.sent();
            reservation.end(Outcome::FirstByteTimeout);
        }),
        900,
        "a worker read the prompt, and did not answer in time",
    );
    assert_eq!(
        left(|reservation| reservation.end(Outcome::FirstByteTimeout)),
        1_000
    );
    assert_eq!(
        left(|mut reservation| {
            reservation.sent();
            reservation.end(Outcome::ShutDown);
        }),
        1_000,
        "the router broke it off",
    );
    assert_eq!(left(|reservation| reservation.end(Outcome::QueueFull)), 1_000);
}

#[test]
fn a_client_that_leaves_pays_for_what_it_saw_whatever_its_tools_state() {
    let mut stream = Tail::default();
    stream.push(
        b"data: {\"response\":{\"tools\":[{\"parameters\":{\"input_tokens\":0,\"output_tokens\":1}}]}}\n\n",
    );
    stream.push(b"data: {}\n\ndata: {}\n\n");
    let left_early = left(|mut reservation| {
        reservation.reconcile(200);
        reservation.answered(StatusCode::OK);
        reservation.seen(&stream);
        reservation.end(Outcome::ClientLeft);
    });
    assert_eq!(left_early, 797);

    stream.push(b"data: {\"response\":{\"usage\":{\"input_tokens\":150,\"output_tokens\":2}}}\n\n");
    let read_whole = left(|mut reservation| {
        reservation.reconcile(200);
        reservation.answered(StatusCode::OK);
        reservation.seen(&stream);
        reservation.read(&stream);
        reservation.end(Outcome::Complete);
    });
    assert_eq!(read_whole, 848);
}

#[test]
fn a_worker_that_states_impossible_usage_costs_its_client_what_was_seen() {
    let answer = |usage: &str| {
        let mut tail = Tail::default();
        tail.push(format!("{{\"usage\":{{{usage}}}}}").as_bytes());
        let seen = tail.counted_tokens();
        let left = left(|mut reservation| {
            reservation.answered(StatusCode::OK);
            reservation.seen(&tail);
        });
        (left, 1_000 - 100 - seen)
    };
    for usage in [
        "\"prompt_tokens\":18446744073709551615,\"completion_tokens\":1",
        "\"prompt_tokens\":7,\"completion_tokens\":18446744073709551615",
        "\"prompt_tokens\":66000,\"completion_tokens\":1",
        "\"prompt_tokens\":7,\"completion_tokens\":70001",
    ] {
        let (left, expected) = answer(usage);
        assert_eq!(left, expected, "{usage}");
    }
    // The client may use as much as the body requests.
    let (left, _) = answer("\"prompt_tokens\":7,\"completion_tokens\":70000");
    assert_eq!(left, 0);
}

#[test]
fn over_its_tokens_a_request_is_not_counted_either() {
    let clients = clients(None, vec![spec("a", limits(2, 1_000, 0))]);
    let mut first = reservation(&clients, "a");
    first.claim(1_000, bound()).unwrap();
    let mut second = reservation(&clients, "a");
    assert!(matches!(
        second.claim(100, bound()),
        Err(Limited::Tokens { limit: 1_000, .. })
    ));
    drop(second);
    assert!(
        enter(&clients, "a").is_ok(),
        "the refused one gave its place back"
    );
}

#[test]
fn requests_at_other_routers_count_against_the_limits_of_a_client() {
    let clients = clients(None, vec![spec("a", limits(60, 600, 3))]);
    let share = clients.share();
    assert_eq!(share.names().collect::<Vec<_>>(), ["a"]);
    share.set_running_elsewhere(0, 2);
    let first = reservation(&clients, "a");
    assert_eq!(share.running(0), Some(1));
    assert!(matches!(
        enter(&clients, "a"),
        Err(Refusal::Limited(Limited::Concurrent { .. }))
    ));
    share.set_running_elsewhere(0, 0);
    let used = share.usage(0, ClientLimit::Requests).unwrap();
    assert_eq!(used.total_us, 1_000_000);
    share.take_elsewhere(0, ClientLimit::Requests, 59_000_000);
    assert!(matches!(
        enter(&clients, "a"),
        Err(Refusal::Limited(Limited::Requests { .. }))
    ));
    share.take_elsewhere(0, ClientLimit::Requests, -1_000_000);
    drop(reservation(&clients, "a"));
    drop(first);
    // A reload keeps what is known.
    let next = self::clients(Some(&clients), vec![spec("a", limits(60, 600, 3))]);
    assert_eq!(
        next.share().usage(0, ClientLimit::Requests).unwrap().debt_us,
        60_000_000
    );
}

#[test]
fn a_debt_that_no_other_router_has_ends() {
    const FULL_US: u64 = 60_000_000;
    let clients = clients(None, vec![spec("a", limits(60, 600, 3))]);
    let (mut share, mut excess) = (clients.share(), DebtExcess::new(Duration::ZERO));
    let debt_us = |share: &ClientShare| share.usage(0, ClientLimit::Requests).unwrap().debt_us;
    share.clock.epoch -= Duration::from_hours(24);
    share.take_elsewhere(0, ClientLimit::Requests, 3_000_000_000);
    share.compare(0, ClientLimit::Requests, FULL_US, &mut excess);
    assert!(debt_us(&share) > FULL_US, "use of this router may be on its way");
    for _ in 0..3 {
        share.clock.epoch -= Duration::from_secs(2);
        share.compare(0, ClientLimit::Requests, FULL_US, &mut excess);
    }
    assert!(debt_us(&share) <= FULL_US);
}

#[test]
fn a_client_that_was_removed_and_added_again_has_other_totals() {
    let first = clients(None, vec![spec("a", limits(60, 600, 3))]);
    let none = clients(Some(&first), vec![]);
    let again = clients(Some(&none), vec![spec("a", limits(60, 600, 3))]);
    let reloaded = clients(Some(&again), vec![spec("a", limits(60, 600, 3))]);
    let [first, again, reloaded] =
        [first, again, reloaded].map(|clients| clients.share().usage(0, ClientLimit::Requests).unwrap().life);
    assert_ne!(first, again);
    assert_eq!(again, reloaded);
}

#[test]
fn totals_of_a_client_go_on_while_it_has_no_limits() {
    let limited = clients(None, vec![spec("a", limits(60, 600, 3))]);
    let running = reservation(&limited, "a");
    let unlimited = clients(Some(&limited), vec![spec("a", ClientLimits::default())]);
    let share = unlimited.share();
    let used = share.usage(0, ClientLimit::Requests).unwrap();
    assert_eq!((used.total_us, share.running(0)), (1_000_000, None));
    let restored = clients(Some(&unlimited), vec![spec("a", limits(60, 600, 3))]);
    assert_eq!(restored.share().running(0), Some(1));
    drop(running);
}

#[test]
fn a_router_that_lost_the_others_enforces_its_share_of_the_limits() {
    let clients = clients(None, vec![spec("a", limits(60, 600, 4))]);
    let share = clients.share();
    share.divide(NonZeroU32::new(2).unwrap());
    let open: Vec<_> = (0..2).map(|_| reservation(&clients, "a")).collect();
    assert!(matches!(
        enter(&clients, "a"),
        Err(Refusal::Limited(Limited::Concurrent { most: 2 }))
    ));
    drop(open);
    for _ in 0..28 {
        drop(reservation(&clients, "a"));
    }
    assert!(matches!(
        enter(&clients, "a"),
        Err(Refusal::Limited(Limited::Requests { limit: 30, .. }))
    ));
    share.divide(NonZeroU32::MIN);
    share.take_elsewhere(0, ClientLimit::Requests, -1_000_000);
    drop(reservation(&clients, "a"));
}
