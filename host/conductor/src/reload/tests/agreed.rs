//! Decisions of a fleet over a store that does not store bytes.

use std::sync::Arc;
use std::time::Duration;

use admin_pages::control::RefusedRouteChange;
use agreement::{
    AgreedEntry, AgreedKey, AgreedKind, AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey,
    StoreError, StoreEvent, SubjectState, WriteOutcome,
};
use prometheus_client::registry::Registry;
use replica_plane::{AgreedHandle, AgreementMetrics, AgreementParts, AgreementTask, ReplicaReports};
use runtime_overrides::{RouteAction, RouteChange};

use super::*;
use crate::shared_trials::ActiveTrials;

/// Store that is full of bytes, and has room for entries.
struct FullStore {
    events: Vec<StoreEvent>,
    revision: u64,
}

impl AgreedStore for FullStore {
    async fn next(&mut self) -> StoreEvent {
        match self.events.pop() {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    async fn write(&mut self, _: &AgreedWrite) -> WriteOutcome {
        self.revision += 1;
        WriteOutcome::Accepted(self.revision)
    }

    async fn read(&mut self, _: &AgreedKey) -> Result<Option<StoreEvent>, StoreError> {
        Ok(None)
    }

    async fn report(&mut self, _: &ReportKey, _: Vec<u8>) -> Result<(), StoreError> {
        Ok(())
    }

    fn put_object(&self, _: &str, _: Arc<Vec<u8>>) -> ObjectWrite {
        Box::pin(std::future::ready(Err(StoreError {
            doing: "store the bytes of a policy",
            why: "maximum bytes exceeded".to_owned(),
        })))
    }

    fn object(&self, _: &str) -> ObjectRead {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Silence after which a router is away.
const FORGET_AFTER: Duration = Duration::from_secs(9);

type Answer = Result<Option<admin_pages::control::RouteAnswer>, RefusedRouteChange>;

async fn canary(scenario: Scenario) -> (Scenario, Answer) {
    let change = RouteChange {
        policy: "mine".to_owned(),
        action: RouteAction::Canary(1_000),
        route: None,
    };
    scenario.run(move |reloader| reloader.change_route(&change)).await
}

pub(super) async fn until(what: &str, look: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if look() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}")
}

/// Lets a scenario follow the decisions of a store with these events, of which the last one comes first.
async fn follow(scenario: &mut Scenario, events: Vec<StoreEvent>) -> AgreedHandle {
    let reports = ReplicaReports::default();
    follow_store(scenario, FullStore { events, revision: 0 }, reports).await
}

/// Lets a scenario follow the decisions of a store, with these reports on the other routers.
#[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
pub(super) async fn follow_store(
    scenario: &mut Scenario,
    store: impl AgreedStore,
    reports: ReplicaReports,
) -> AgreedHandle {
    let handle = AgreedHandle::new("1", "one");
    let task = AgreementTask::new(AgreementParts {
        handle: handle.clone(),
        trials: ActiveTrials(Arc::clone(&scenario.reloader.live.cell)),
        metrics: Arc::new(AgreementMetrics::register(&mut Registry::default())),
    });
    tokio::spawn(task.run(store, CancellationToken::new()));
    scenario.reloader.agreed = Some(AgreedFollower::new(handle.clone(), reports, FORGET_AFTER));
    until("the store is reached", || handle.view().is_synced).await;
    handle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_route_change_whose_bytes_the_store_refuses_is_refused_with_the_reason_in_the_end() {
    let mut scenario = Scenario::begin().await;
    let handle = follow(&mut scenario, vec![StoreEvent::Synced, StoreEvent::Opened]).await;
    fs::create_dir_all(scenario.path("policies")).unwrap();
    let text = format!("policy-dir = \"policies\"\n{}", before());
    fs::write(scenario.path("conductor.toml"), text).unwrap();
    let component = harness::sends_to(0, 1).unwrap();
    fs::write(scenario.path("policies/mine.wasm"), component).unwrap();

    let outcome;
    (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    let mut answer;
    for _ in 0..1_000 {
        (scenario, answer) = canary(scenario).await;
        assert!(matches!(answer, Ok(None)), "it waits: {answer:?}");
        if handle.view().proposals() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let is_refused = || {
        let view = handle.view();
        view.followed().any(|(key, _)| view.refusal(&key).is_some())
    };
    until("the store refuses the bytes", is_refused).await;
    assert_eq!(handle.view().proposals(), 1);
    let follower = scenario.reloader.agreed.as_mut().unwrap();
    follower.age_staging(Duration::from_secs(61));
    (scenario, answer) = canary(scenario).await;
    assert!(
        matches!(answer, Ok(None)),
        "it waits until it is taken back: {answer:?}"
    );
    until("the change is taken back", || handle.view().proposals() == 0).await;
    (scenario, answer) = canary(scenario).await;
    let Err(RefusedRouteChange::Fleet(why)) = answer else {
        panic!("it is refused: {answer:?}")
    };
    assert!(why.contains("maximum bytes exceeded"), "{why}");
    drop(scenario);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn routes_that_could_not_be_built_after_a_rollback_of_the_fleet_are_built_at_the_next_look() {
    let mut scenario = Scenario::begin().await;
    let handle = AgreedHandle::new("1", "one");
    scenario.reloader.agreed = Some(AgreedFollower::new(
        handle,
        ReplicaReports::default(),
        FORGET_AFTER,
    ));
    let look = |scenario: Scenario| {
        scenario.run(|reloader| {
            reloader.follow_agreed();
            reloader.active.generation.0
        })
    };
    let (generation, needs_routes, unchanged);
    (scenario, generation) = look(scenario).await;
    scenario.reloader.steps.fault = Some(PlanStep::Sockets);
    (scenario, needs_routes) = scenario
        .run(|reloader| {
            reloader.renew_policies(true, false);
            reloader.needs_routes()
        })
        .await;
    assert!(needs_routes);
    (scenario, unchanged) = look(scenario).await;
    assert_eq!(unchanged, generation);
    scenario.reloader.steps.fault = None;
    for _ in 0..2 {
        let now;
        (scenario, now) = look(scenario).await;
        assert_eq!(now, generation + 1, "they are built once");
    }
    drop(scenario);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refused_decisions_of_the_fleet_are_tried_again_once_the_configuration_has_changed() {
    let mut scenario = Scenario::begin().await;
    let url = "http://127.0.0.1:99";
    let key = AgreedKey::of(AgreedKind::Instance, url);
    let worker = serde_json::json!({"name": "w9", "role": "mixed", "bootstrap": null, "drain": false});
    let added = serde_json::json!({"url": url, "pool": "chat", "file": null, "now": worker});
    let entry = StoreEvent::Entry {
        key: key.clone(),
        revision: 1,
        bytes: AgreedEntry::new("2", 1, 0, added).encode(),
    };
    let events = vec![StoreEvent::Synced, entry, StoreEvent::Opened];
    let handle = follow(&mut scenario, events).await;
    let state = || handle.states().get(&key).unwrap().1.clone();
    for fault in [Some(PlanStep::RequestPath), None] {
        let look = move |reloader: &mut Reloader| {
            reloader.steps.fault = fault;
            reloader.follow_agreed();
        };
        (scenario, _) = scenario.run(look).await;
        let state = state();
        assert!(matches!(state, SubjectState::Refused(_)), "{fault:?}: {state:?}");
    }
    let changed = before().replace("\"w1\"", "\"w2\"");
    fs::write(scenario.path("conductor.toml"), changed).unwrap();
    let outcome;
    (scenario, outcome) = scenario.reload(None).await;
    assert!(outcome.has_changes(), "{outcome:?}");
    assert_eq!(state(), SubjectState::Applied);
    drop(scenario);
}
