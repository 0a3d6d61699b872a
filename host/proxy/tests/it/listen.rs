//! Tests of policies that receive events of requests and workers, outside the request path.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use routing::{
    DecisionInput, Dialect, Event, EventKinds, EventListener, FeaturePlan, Policy, PolicyDescription,
    PolicyFault, Role, Verdict,
};

use crate::client::{chat, send};
use crate::eventually;
use crate::pair::{one_pair, prefilling, request};
use crate::policy::{fault, route};
use crate::router::{Builder, Router, router, spec};
use crate::worker::{Leaving, Worker, json, streaming, written};

const FIRST: &str = "data: {\"n\":1}\n\n";

/// Policy that takes the first candidate and receives events.
#[derive(Debug, Clone)]
struct Listening {
    subscriber: Arc<EventSubscriber>,
    plan: FeaturePlan,
}

/// Event listener that subscribes to everything and to ticks.
struct EventSubscriber {
    policy: &'static str,
    received: Mutex<Vec<Event>>,
    ticks: AtomicUsize,
    rests: AtomicUsize,
    is_failing: AtomicBool,
}

fn listening() -> Listening {
    Listening {
        subscriber: Arc::new(EventSubscriber {
            policy: "listening",
            received: Mutex::default(),
            ticks: AtomicUsize::new(0),
            rests: AtomicUsize::new(0),
            is_failing: AtomicBool::new(false),
        }),
        plan: FeaturePlan::default(),
    }
}

impl Listening {
    fn policy(&self) -> Arc<dyn Policy> {
        Arc::new(self.clone())
    }

    /// Returns the received events as `kind request worker`.
    fn received(&self) -> Vec<String> {
        let received = self.subscriber.received.lock().unwrap();
        let line = |event: &Event| {
            let worker = &event.worker.spec().name;
            format!("{} {} {worker}", event.kind.as_str(), event.seq)
        };
        received.iter().map(line).collect()
    }

    /// Waits until exactly these events were received.
    async fn receives(&self, expected: &[&str]) {
        eventually(&format!("it receives {expected:?}"), || {
            self.received().len() >= expected.len()
        })
        .await;
        assert_eq!(self.received(), expected);
    }

    fn events(&self) -> Vec<Event> {
        self.subscriber.received.lock().unwrap().clone()
    }
}

impl PolicyDescription for Listening {
    fn name(&self) -> &str {
        self.subscriber.policy
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }
}

impl Policy for Listening {
    fn decide(&self, _: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        Ok(route(0))
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        vec![Arc::clone(&self.subscriber) as _]
    }
}

impl EventListener for EventSubscriber {
    fn policy(&self) -> &str {
        self.policy
    }

    fn kinds(&self) -> EventKinds {
        routing::EventKind::ALL.into_iter().collect()
    }

    fn ticks(&self) -> bool {
        true
    }

    fn handle(&self, batch: &[Event], now_us: u64) -> Result<(), PolicyFault> {
        assert!(batch.len() <= 256);
        assert!(batch.iter().all(|event| event.at_us <= now_us));
        if self.is_failing.load(Ordering::Relaxed) {
            return Err(fault());
        }
        self.received.lock().unwrap().extend_from_slice(batch);
        Ok(())
    }

    fn tick(&self, _: u64) -> Result<Duration, PolicyFault> {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        Ok(Duration::from_hours(1))
    }

    fn rest(&self) {
        self.rests.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for EventSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSubscriber")
    }
}

fn reported_to(policy: &Listening, worker: &Worker) -> Builder {
    router().worker("a", &worker.url()).policy(policy.policy())
}

fn counted(router: &Router, result: &str) -> f64 {
    router.metric(&format!(
        "conductor_policy_events_total{{policy=\"listening\",result=\"{result}\"}}"
    ))
}

#[tokio::test]
async fn events_report_a_request_from_its_dispatch_to_its_end() {
    let policy = listening();
    let (worker, mut pens) = streaming().await;
    let router = reported_to(&policy, &worker).start().await;
    policy.receives(&["worker.joined 0 a"]).await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    answer.piece().await.unwrap().unwrap();
    let begun = [
        "worker.joined 0 a",
        "request.dispatched 1 a",
        "request.first-token 1 a",
    ];
    policy.receives(&begun).await;
    drop(pen);
    answer.text().await;
    policy
        .receives(&[&begun[..], &["request.finished 1 a"]].concat())
        .await;
    let events = policy.events();
    assert!(events.is_sorted_by_key(|event| event.at_us));
    assert!(events[1].number >= 1.0, "tokens of the prompt");
    assert!(
        events[2].number <= events[3].number,
        "milliseconds since the dispatch"
    );
    assert_eq!(policy.subscriber.ticks.load(Ordering::Relaxed), 1);
    // They are counted after the call.
    eventually("the events are counted", || counted(&router, "delivered") == 4.0).await;
    eventually("the tick is counted", || {
        router.metric("conductor_policy_ticks_total{policy=\"listening\"}") == 1.0
    })
    .await;
}

#[tokio::test]
async fn each_try_has_its_own_worker_and_its_own_end() {
    let policy = listening();
    let (down, up) = (Leaving::start().await, Worker::named("b").await);
    let router = router().worker("a", &down.url).worker("b", &up.url());
    let router = router.policy(policy.policy()).start().await;
    down.leave().await;
    assert_eq!(send(router.address, chat()).await.status, StatusCode::OK);
    policy
        .receives(&[
            "worker.joined 0 a",
            "worker.joined 0 b",
            "request.dispatched 1 a",
            "request.failed 1 a",
            "request.dispatched 1 b",
            "request.finished 1 b",
        ])
        .await;
}

#[tokio::test]
async fn a_workers_own_trouble_is_a_failure_and_a_clients_mistake_is_not() {
    let policy = listening();
    let worker = Worker::start(|request| async move {
        let status = if request.body.len() > 2 { 503 } else { 422 };
        json(status, "{}")
    })
    .await;
    let router = reported_to(&policy, &worker).start().await;
    send(router.address, crate::client::post("/v1/completions", "{}"))
        .await
        .text()
        .await;
    send(router.address, chat()).await.text().await;
    policy
        .receives(&[
            "worker.joined 0 a",
            "request.dispatched 1 a",
            "request.finished 1 a",
            "request.dispatched 2 a",
            "request.failed 2 a",
        ])
        .await;
}

#[tokio::test]
async fn a_client_that_leaves_abandons_its_request() {
    let policy = listening();
    let (worker, mut pens) = streaming().await;
    let router = reported_to(&policy, &worker).start().await;
    let mut answer = send(router.address, chat()).await;
    let pen = pens.recv().await.unwrap();
    pen.send(Ok(FIRST.into())).await.unwrap();
    answer.piece().await.unwrap().unwrap();
    drop(answer);
    policy
        .receives(&[
            "worker.joined 0 a",
            "request.dispatched 1 a",
            "request.first-token 1 a",
            "request.abandoned 1 a",
        ])
        .await;
}

/// Events of a request on a prefill and a decode worker.
const BOTH_LEGS: &[&str] = &[
    "worker.joined 0 p",
    "worker.joined 0 d",
    "request.dispatched 1 p",
    "request.first-token 1 p",
    "request.finished 1 p",
    "request.dispatched 1 d",
    "request.finished 1 d",
];

#[tokio::test]
async fn events_report_both_legs_of_a_request_with_their_own_workers() {
    let policy = listening();
    let (prefill, decode) = (prefilling().await, Worker::named("d").await);
    let router = one_pair(Dialect::Nixl, &prefill, &decode).policy(policy.policy());
    let router = router.start().await;
    send(router.address, request()).await.text().await;
    policy.receives(BOTH_LEGS).await;
}

#[tokio::test]
async fn a_decode_stream_that_begins_with_the_clients_mistake_is_no_failure() {
    let policy = listening();
    let decode = Worker::start(|_| async {
        let event = "data: {\"error\":{\"message\":\"no\",\"type\":\"BadRequestError\",\"code\":400}}\n\n";
        let (pen, response) = written("text/event-stream");
        pen.send(Ok(event.into())).await.unwrap();
        response
    })
    .await;
    let prefill = prefilling().await;
    let router = one_pair(Dialect::Nixl, &prefill, &decode).policy(policy.policy());
    let router = router.start().await;
    assert_eq!(
        send(router.address, request()).await.status,
        StatusCode::BAD_REQUEST
    );
    policy.receives(BOTH_LEGS).await;
}

#[tokio::test]
async fn changes_of_workers_and_their_roles_are_reported_as_events() {
    let policy = listening();
    let worker = Worker::named("a").await;
    let mut router = reported_to(&policy, &worker).start().await;
    policy.receives(&["worker.joined 0 a"]).await;
    let two = reported_to(&policy, &worker).worker("b", &worker.url());
    router.change(two);
    let changed = self::router().specified(spec(Role::Prefill, "b", &worker.url()));
    router.change(changed.policy(policy.policy()));
    policy
        .receives(&[
            "worker.joined 0 a",
            "worker.joined 0 b",
            "worker.role 0 b",
            "worker.left 0 a",
        ])
        .await;
    assert_eq!(policy.events()[2].number, Role::Prefill.number());
    assert!(policy.events()[3].number.is_nan());
}

#[tokio::test]
async fn a_new_version_begins_with_the_workers_and_the_old_one_receives_no_more_events() {
    let (old, new) = (listening(), listening());
    let worker = Worker::named("a").await;
    let mut router = reported_to(&old, &worker).start().await;
    old.receives(&["worker.joined 0 a"]).await;
    router.change(reported_to(&new, &worker));
    new.receives(&["worker.joined 0 a"]).await;
    eventually("the old one rests", || {
        old.subscriber.rests.load(Ordering::Relaxed) == 1
    })
    .await;
    send(router.address, chat()).await.text().await;
    new.receives(&[
        "worker.joined 0 a",
        "request.dispatched 1 a",
        "request.finished 1 a",
    ])
    .await;
    old.receives(&["worker.joined 0 a"]).await;
    assert_eq!(new.subscriber.ticks.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn shadows_receive_events_too_and_a_policy_on_two_places_once() {
    let (policy, shadow) = (listening(), listening());
    let worker = Worker::named("a").await;
    let router = reported_to(&policy, &worker).with(|builder| {
        builder.shadows = vec![shadow.policy()];
        builder.decode_policy = Some(policy.policy());
    });
    let router = router.start().await;
    send(router.address, chat()).await.text().await;
    let expected = [
        "worker.joined 0 a",
        "request.dispatched 1 a",
        "request.finished 1 a",
    ];
    policy.receives(&expected).await;
    shadow.receives(&expected).await;
}

#[tokio::test]
async fn a_listener_that_fails_fails_no_request_is_counted_and_rests() {
    let policy = listening();
    policy.subscriber.is_failing.store(true, Ordering::Relaxed);
    let worker = Worker::named("a").await;
    let router = reported_to(&policy, &worker).start().await;
    let report = || router.snapshot().listeners().remove(0);
    let mut sent = 0;
    while report().circuit.as_str() == "closed" {
        assert_eq!(send(router.address, chat()).await.status, StatusCode::OK);
        sent += 1;
        assert!(sent < 10_000, "{:?}", report());
    }
    let is_counted = |fault: &(&str, u64)| fault.0 == "trap" && fault.1 >= 5;
    assert!(report().faults.iter().any(is_counted), "{:?}", report());
    assert_eq!(report().delivered, 0);
    let faults = router.metric("conductor_policy_event_faults_total{policy=\"listening\",kind=\"trap\"}");
    assert!(faults >= 5.0, "{faults}");
    // While its circuit is open, it receives no events.
    assert_eq!(send(router.address, chat()).await.status, StatusCode::OK);
    eventually("all its events are dropped", || {
        report().waiting == 0 && counted(&router, "dropped") >= 5.0
    })
    .await;
    // The policy works again, and receives events without intervention.
    policy.subscriber.is_failing.store(false, Ordering::Relaxed);
    loop {
        assert_eq!(send(router.address, chat()).await.status, StatusCode::OK);
        if report().circuit.as_str() == "closed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(report().delivered > 0);
}
