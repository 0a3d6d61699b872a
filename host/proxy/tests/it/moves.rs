//! Tests of queued requests whose pool or policy changes while they wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all, select_all};
use http::StatusCode;
use proxy::{Authorization, TokenSource};
use routing::{Dialect, Hold, Phase, Policy, Verdict};

use crate::client::{chat, post, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::pair::{self, one_pair, prefilling};
use crate::policy::{Scripted, fault, pair as pair_of, route};
use crate::queue::{held, one_at_a_time};
use crate::router::{Builder, LaterChange, Router, router};
use crate::worker::{Received, Worker, json, streaming, whole};

/// Returns a router over one worker, which holds requests while another is in flight.
fn over(name: &str, worker: &Worker) -> Builder {
    router().worker(name, &worker.url()).policy(one_at_a_time())
}

/// Sends a request that waits for a worker, and replaces the pool's worker and settings meanwhile. Returns the status
/// of the answer and the request that the second worker got.
async fn replaced(
    before: impl FnOnce(&mut Builder),
    after: impl FnOnce(&mut Builder),
) -> (StatusCode, Option<Received>) {
    let (first, mut pens) = streaming().await;
    let second = Worker::start(|_| async { json(200, "{}") }).await;
    let mut router = over("a", &first).with(before).start().await;
    let running = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    let mut request = chat();
    let key = "Bearer client".parse().unwrap();
    request.headers_mut().insert("authorization", key);
    let waiting = send(router.address, request);
    let replacing = async {
        held(&router, 1.0).await;
        router.change(over("b", &second).with(after));
        eventually("the worker was checked", || router.has_checked_all()).await;
        drop(pen);
        running.text().await;
    };
    let (answer, ()) = join(waiting, replacing).await;
    let mut received = second.received().into_iter();
    (answer.status, received.find(|request| request.method == "POST"))
}

#[tokio::test]
async fn a_request_that_moves_carries_the_key_of_its_later_pool() {
    let own = |key| Authorization::bearer(key).unwrap();
    for (before, after, expected) in [
        (own("old"), own("new"), Some("Bearer new")),
        (own("old"), Authorization::Pass, Some("Bearer client")),
        (own("old"), Authorization::Drop, None),
        (Authorization::Pass, Authorization::Drop, None),
        (Authorization::Drop, own("new"), Some("Bearer new")),
    ] {
        let to = format!("{before:?} to {after:?}");
        let moved = replaced(
            |with| with.authorization = before,
            |with| with.authorization = after,
        );
        let (status, received) = moved.await;
        assert_eq!(status, StatusCode::OK, "{to}");
        let received = received.unwrap();
        let key = received.headers.get("authorization");
        assert_eq!(key.map(|key| key.to_str().unwrap()), expected, "{to}");
    }
}

#[tokio::test]
async fn a_request_without_a_salt_does_not_move_to_a_pool_that_isolates_prefixes() {
    let isolating = |with: &mut Builder| with.isolate_prefixes = true;
    let (_, received) = replaced(|_| {}, isolating).await;
    assert!(received.is_none());
    let (status, received) = replaced(isolating, |_| {}).await;
    assert_eq!(status, StatusCode::OK);
    let body = received.unwrap().body;
    assert!(String::from_utf8_lossy(&body).contains("cache_salt"));
}

/// Creates a hold until the queue is woken: its other end is later than the time in the queue.
fn hold() -> Verdict {
    Verdict::Queue(Hold {
        order: 0.0,
        // At most the queue timeout of a test router.
        ask_again_ms: 60_000,
        waits_for: None,
    })
}

/// Creates a policy that holds every request until the queue is woken.
fn holding(name: &'static str) -> Arc<Scripted> {
    Scripted::named(name, &[], &[], |_| Ok(hold()))
}

/// Creates a policy that takes the first worker.
fn routing(name: &'static str) -> Arc<Scripted> {
    Scripted::named(name, &[], &[], |_| Ok(route(0)))
}

/// Holds three requests with the first configuration, and activates the second one. Returns the router and the policies
/// that the answers name.
async fn freed(before: Builder, after: Builder) -> (Router, Vec<String>) {
    let mut router = before.start().await;
    let address = router.address;
    let waiting = join_all((0..3).map(|_| send(address, chat())));
    let replacing = async {
        held(&router, 3.0).await;
        router.change(after);
    };
    let (answers, ()) = join(waiting, replacing).await;
    let named = answers.iter().map(|answer| {
        assert_eq!(answer.status, StatusCode::OK);
        answer.header("x-conductor-policy").unwrap().to_owned()
    });
    let named = named.collect();
    (router, named)
}

fn verdicts(router: &Router, policy: &str, verdict: &str) -> f64 {
    router.metric(&format!(
        r#"conductor_policy_decisions_total{{policy="{policy}",verdict="{verdict}"}}"#
    ))
}

#[tokio::test]
async fn held_requests_are_decided_at_once_by_the_present_policy_of_their_route() {
    let worker = Worker::named("a").await;
    let over = || router().worker("a", &worker.url());
    let (earlier, later) = (holding("mine"), routing("mine"));
    let (router, _) = freed(over().policy(earlier.clone()), over().policy(later.clone())).await;
    assert_eq!((earlier.shown().len(), later.shown().len()), (3, 3));
    assert_eq!(verdicts(&router, "mine", "queue"), 3.0);
    assert_eq!(verdicts(&router, "mine", "route"), 3.0);
    assert_eq!(router.outcomes("complete"), 3.0);
    assert_eq!(router.pool_metric("queue_wait_seconds_count"), 3.0);
    let kept = Arc::downgrade(&earlier);
    drop(earlier);
    eventually("the earlier policy is dropped", || kept.strong_count() == 0).await;
}

#[tokio::test]
async fn held_requests_of_a_canary_keep_it_by_name_and_return_to_the_control_without_it() {
    let worker = Worker::named("a").await;
    let over = |canaries: Vec<(Arc<dyn Policy>, u32)>| {
        let with = router().worker("a", &worker.url()).policy(routing("control"));
        with.with(|with| with.canaries = canaries)
    };
    let before = || over(vec![(holding("canary"), 10_000)]);
    let other = || (routing("other") as Arc<dyn Policy>, 1);
    let kept = over(vec![other(), (routing("canary"), 9_999)]);
    let (_, named) = freed(before(), kept).await;
    assert_eq!(named, ["canary@native"; 3]);
    let (router, named) = freed(before(), over(vec![other()])).await;
    assert_eq!(named, ["control@native"; 3]);
    assert_eq!(verdicts(&router, "control", "route"), 3.0);
    let arms = &router.snapshot().trials()[0].arms;
    let counted: Vec<u64> = arms.iter().map(|arm| arm.side.requests).collect();
    assert_eq!(counted, [0, 0], "the experiment began after they were assigned");
    let labels = |arm: &str| format!(r#"pool="main",route="*",policy="{arm}",outcome="complete""#);
    let of_arm = |arm| router.metric(&format!("conductor_arm_requests_total{{{}}}", labels(arm)));
    assert_eq!(
        (of_arm("canary"), of_arm("control")),
        (3.0, 0.0),
        "by the arrival"
    );
}

#[tokio::test]
async fn held_requests_of_a_stopped_canary_are_decided_at_once_by_the_control() {
    let worker = Worker::named("a").await;
    let with = router().worker("a", &worker.url()).policy(routing("control"));
    let built = with.with(|with| with.canaries = vec![(holding("canary"), 10_000)]);
    let router = built.start().await;
    let waiting = join_all((0..3).map(|_| send(router.address, chat())));
    let stopping = async {
        held(&router, 3.0).await;
        assert!(router.snapshot().trial_shares()[0].obey_stop(1, "other", "worse"));
    };
    let (answers, ()) = join(waiting, stopping).await;
    for answer in answers {
        assert_eq!(answer.header("x-conductor-policy"), Some("control@native"));
    }
}

/// Creates a policy that takes a worker for requests of so many tokens. It holds the others, in the order of their
/// tokens.
fn taking_from(tokens: f64, name: &'static str) -> Arc<Scripted> {
    Scripted::named(name, &["request.max-tokens"], &[], move |input| {
        let order = input.numbers[0];
        Ok(if order >= tokens {
            route(0)
        } else {
            Verdict::Queue(Hold {
                order,
                ask_again_ms: 60_000,
                waits_for: None,
            })
        })
    })
}

/// Holds many requests, and makes the change. Returns the policy that the answer of the last one in order names. The
/// others stay held.
async fn last_of_many(over: Builder, change: impl FnOnce(&mut Router)) -> String {
    const LAST: u32 = 40;
    let mut router = over.start().await;
    // No time in the queue and no re-evaluation by time ends.
    let _clock = StoppedClock::stop();
    let request = |tokens: u32| {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":{tokens}}}"#);
        send(router.address, post("/v1/chat/completions", body))
    };
    let others = select_all((1..LAST).map(|tokens| Box::pin(request(tokens))));
    let last = request(LAST);
    let changing = async {
        held(&router, LAST.into()).await;
        change(&mut router);
    };
    tokio::select! {
        _ = others => panic!("the others are held"),
        (answer, ()) = join(last, changing) => answer.header("x-conductor-policy").unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_stopped_canary_frees_a_request_behind_many_that_the_control_holds() {
    let worker = Worker::named("a").await;
    let with = router()
        .worker("a", &worker.url())
        .policy(taking_from(40.0, "control"));
    let built = with.with(|with| {
        with.queue_limit = 64;
        with.canaries = vec![(taking_from(f64::INFINITY, "canary"), 10_000)];
    });
    let stop = |router: &mut Router| {
        assert!(router.snapshot().trial_shares()[0].obey_stop(1, "other", "worse"));
    };
    assert_eq!(last_of_many(built, stop).await, "control@native");
}

#[tokio::test]
async fn another_version_frees_a_request_behind_many_that_it_holds() {
    let worker = Worker::named("a").await;
    let over = |policy: Arc<Scripted>| {
        let with = router().worker("a", &worker.url()).policy(policy);
        with.with(|with| with.queue_limit = 64)
    };
    let later = over(taking_from(40.0, "mine"));
    let change = |router: &mut Router| router.change(later);
    assert_eq!(
        last_of_many(over(taking_from(f64::INFINITY, "mine")), change).await,
        "mine@native"
    );
}

#[tokio::test]
async fn a_request_whose_route_changes_before_its_first_decision_is_not_held_by_the_policy_before() {
    let due: Arc<Mutex<Option<LaterChange>>> = Arc::default();
    let change = Arc::clone(&due);
    // The change is made while the request waits for its tokens.
    let worker = Worker::start(move |request| {
        let change = Arc::clone(&change);
        async move {
            if request.uri.path() == "/tokenize" {
                change.lock().unwrap().take().unwrap()();
            }
            json(200, "{}")
        }
    });
    let worker = worker.await;
    let over = |policy: Arc<Scripted>| {
        let with = router().worker("a", &worker.url()).policy(policy);
        with.with(|with| {
            with.tokens = TokenSource::Worker {
                timeout: Duration::from_secs(10),
            };
        })
    };
    let earlier = Scripted::named("mine", &["request.prompt-tokens"], &[], |_| Ok(hold()));
    let later = routing("mine");
    let router = over(earlier.clone()).start().await;
    *due.lock().unwrap() = Some(router.later_change(&over(later.clone())));
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!((earlier.shown().len(), later.shown().len()), (1, 1));
    assert_eq!(
        router.pool_metric("queue_wait_seconds_count"),
        0.0,
        "it never waited"
    );
}

#[tokio::test]
async fn held_requests_follow_a_route_to_policies_of_its_phases_and_back() {
    let (prefill, decode) = (prefilling().await, Worker::named("d").await);
    let over = || one_pair(Dialect::Nixl, &prefill, &decode);
    let pairing =
        |name, verdict: fn() -> Verdict| Scripted::named(name, &[], &["worker.role"], move |_| Ok(verdict()));
    let by_phase = |parts: [&Arc<Scripted>; 3]| {
        let [whole, prefills, decodes] = parts.map(|part| Arc::clone(part) as Arc<dyn Policy>);
        over().policy(whole).with(|with| {
            with.prefill_policy = Some(prefills);
            with.decode_policy = Some(decodes);
        })
    };
    let (whole, prefills, decodes) = (pairing("whole", hold), routing("prefills"), routing("decodes"));
    freed_pairs(
        over().policy(whole.clone()),
        by_phase([&whole, &prefills, &decodes]),
    )
    .await;
    assert_eq!(
        (prefills.phases(), decodes.phases()),
        (vec![Phase::Prefill], vec![Phase::Decode])
    );
    let (whole, prefills, decodes) = (
        pairing("whole", || pair_of(1, 0)),
        holding("prefills"),
        routing("decodes"),
    );
    freed_pairs(
        by_phase([&whole, &prefills, &decodes]),
        over().policy(whole.clone()),
    )
    .await;
    assert_eq!((whole.phases(), decodes.phases()), (vec![Phase::Mixed], vec![]));
}

/// Holds a request that can be split with the first configuration, and activates the second one.
async fn freed_pairs(before: Builder, after: Builder) {
    let mut router = before.start().await;
    let waiting = send(router.address, pair::request());
    let replacing = async {
        held(&router, 1.0).await;
        router.change(after);
    };
    let (answer, ()) = join(waiting, replacing).await;
    assert_eq!(answer.text().await, "d");
}

#[tokio::test]
async fn a_held_decode_leg_gets_the_present_policy_and_keeps_its_pool() {
    let prefill = prefilling().await;
    let (second, added) = (Worker::named("e").await, Worker::named("new").await);
    let first = Worker::start(|_| async { whole(503, "text/plain", "no") }).await;
    let over = |policy: Arc<Scripted>| {
        one_pair(Dialect::Nixl, &prefill, &first)
            .decode("e", &second.url())
            .with(|with| with.decode_policy = Some(policy))
    };
    let earlier = Scripted::named("decodes", &[], &[], |input| {
        Ok(if input.request.attempt == 0 {
            route(0)
        } else {
            hold()
        })
    });
    let later = routing("decodes");
    let mut router = over(earlier).start().await;
    let waiting = send(router.address, pair::request());
    let replacing = async {
        held(&router, 1.0).await;
        let after = crate::router::router()
            .decode("new", &added.url())
            .pd(Dialect::Nixl);
        let after = after
            .prefill("p", &prefill.url())
            .decode("d", &first.url())
            .decode("e", &second.url());
        router.change(after.with(|with| with.decode_policy = Some(later.clone())));
        eventually("the new worker was checked", || router.has_checked_all()).await;
    };
    let (answer, ()) = join(waiting, replacing).await;
    assert_eq!(answer.text().await, "e");
    assert_eq!(prefill.received().len(), 1, "its prompt is kept");
    assert_eq!(later.phases(), [Phase::Decode]);
    assert!(added.received().iter().all(|request| request.method != "POST"));
}

#[tokio::test]
async fn a_request_that_moves_is_compared_with_the_shadows_of_its_arrival() {
    let worker = Worker::named("a").await;
    let over = |policy: Arc<Scripted>, shadow: &Arc<Scripted>| {
        let with = router().worker("a", &worker.url()).policy(policy);
        with.with(|with| with.shadows = vec![shadow.clone() as Arc<dyn Policy>])
    };
    let shadows = [routing("before"), routing("after")];
    let before = over(holding("mine"), &shadows[0]);
    let after = over(routing("mine"), &shadows[1]);
    let (_router, named) = freed(before, after).await;
    assert_eq!(named, ["mine@native"; 3]);
    eventually("they are compared", || shadows[0].shown().len() == 3).await;
    assert!(shadows[1].shown().is_empty());
}

#[tokio::test]
async fn faults_of_the_present_policy_are_counted_to_it() {
    let worker = Worker::named("a").await;
    let over = || router().worker("a", &worker.url());
    let later = Scripted::named("later", &[], &[], |_| Err(fault()));
    let (router, named) = freed(over().policy(holding("earlier")), over().policy(later)).await;
    assert_eq!(named, ["least-loaded@native"; 3]);
    let faults = r#"conductor_policy_faults_total{policy="later",kind="trap"}"#;
    assert_eq!(router.metric(faults), 3.0);
    assert_eq!(router.fallbacks("later"), [0.0, 3.0, 0.0]);
    assert_eq!(router.fallbacks("earlier"), [0.0; 3]);
}
