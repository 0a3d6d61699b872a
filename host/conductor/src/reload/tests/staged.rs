//! Changes of a route that this router stages for a fleet, over a store whose entries the test writes for other
//! routers.

use std::time::Duration;

use admin_pages::control::{RefusedRouteChange, RouteAnswer};
use agreement::{AgreedEntry, AgreedKey, AgreedKind, ReportKey, RouterStates, StoreEvent, SubjectState};
use replica_plane::{AgreedHandle, NewestMessage, ReplicaReport, ReplicaReports, RouterRow};
use runtime_overrides::{RouteAction, RouteChange};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::agreed::{follow_store, until};
use super::fleet_store::{FleetStore, WriteAnswer};
use super::*;

type Answer = Result<Option<RouteAnswer>, RefusedRouteChange>;

/// A router of a fleet with one route, and a policy that is loaded.
pub(super) struct Stage {
    pub(super) scenario: Option<Scenario>,
    pub(super) store: FleetStore,
    pub(super) handle: AgreedHandle,
    pub(super) reports: ReplicaReports,
}

impl Stage {
    pub(super) async fn begin() -> Self {
        let mut scenario = Scenario::begin().await;
        let (store, end) = FleetStore::new();
        let reports = ReplicaReports::default();
        let handle = follow_store(&mut scenario, end, reports.clone()).await;
        Self {
            scenario: Some(scenario),
            store,
            handle,
            reports,
        }
    }

    /// Returns a router whose fleet has decided on a shadow.
    pub(super) async fn decided() -> Self {
        let mut stage = Self::begin().await;
        let answer = stage.answer().await;
        assert!(answer.is_ok(), "{answer:?}");
        stage
    }

    /// Returns a router that cannot follow a later decision of another one.
    pub(super) async fn apart() -> Self {
        let mut stage = Self::decided().await;
        stage.store.put_other(other_bytes);
        let state = stage.own_state().await;
        assert!(matches!(state, SubjectState::Refused(_)), "{state:?}");
        stage
    }

    /// Runs rounds until the shadow is made, by two writes.
    async fn until_switched(&mut self) {
        let answer = self.answer().await;
        assert!(answer.is_ok(), "{answer:?}");
        let made = (self.store.revision(), self.shadows().await);
        assert_eq!(made, (2, json!(["random"])));
    }

    pub(super) async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Reloader) -> T + Send + 'static,
    ) -> T {
        let (scenario, done) = self.scenario.take().unwrap().run(work).await;
        self.scenario = Some(scenario);
        done
    }

    /// Runs a round with the request of a shadow.
    pub(super) async fn round(&mut self, policy: &'static str) -> Answer {
        self.run(move |reloader| {
            reloader.follow_agreed();
            reloader.change_route(&shadow(policy))
        })
        .await
    }

    /// Runs rounds until the store has this revision.
    pub(super) async fn until_revision(&mut self, revision: u64) {
        for _ in 0..1_000 {
            if self.store.revision() == revision {
                return self.until_seen().await;
            }
            let answer = self.round("random").await;
            assert!(matches!(answer, Ok(None)), "it waits: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never: revision {revision}")
    }

    /// Runs rounds until this router proposes the switch, and returns it.
    async fn until_switch(&mut self) -> AgreedEntry {
        let key = self.store.key();
        for _ in 0..1_000 {
            let view = self.handle.view();
            let mut followed = view.followed();
            if let Some((_, own)) = followed.find(|(known, own)| *known == key && own.revision == 0) {
                assert!(own.entry.value["staged"].is_null());
                return own.entry;
            }
            let answer = self.round("random").await;
            assert!(matches!(answer, Ok(None)), "it waits: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never: the switch")
    }

    /// Holds the router's task in a report, until there is room for more.
    async fn hold(&self) {
        self.store.reports.forget_permits(Semaphore::MAX_PERMITS);
        let other = AgreedKey::of(AgreedKind::Hold, "other");
        self.handle.set_state(&other, 1, SubjectState::Applied);
        until("a report waits", || self.store.is_held()).await;
    }

    /// Runs rounds until there is an answer.
    pub(super) async fn answer(&mut self) -> Result<RouteAnswer, RefusedRouteChange> {
        self.answer_to("random").await
    }

    pub(super) async fn answer_to(
        &mut self,
        policy: &'static str,
    ) -> Result<RouteAnswer, RefusedRouteChange> {
        for _ in 0..1_000 {
            if let Some(answer) = self.round(policy).await.transpose() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("never: an answer")
    }

    /// Waits until the router's task has taken in what the store sent.
    pub(super) async fn until_seen(&self) {
        let (key, revision) = (self.store.key(), self.store.revision());
        until("the entry is seen", || {
            self.handle.view().revision(&key) == revision
        })
        .await;
    }

    /// Lets the other router be heard, and report a state of the present entry.
    async fn other_reports(&self, state: SubjectState) {
        self.other_is(Some("ready"), state).await;
    }

    /// Lets the report on the others have the other router in this state, if any, which reported a state of the present
    /// entry.
    pub(super) async fn other_is(&self, heard: Option<&'static str>, state: SubjectState) {
        let row = |router: &str| RouterRow {
            router: router.to_owned(),
            name: Some(router.to_owned()),
            version: None,
            state: heard.unwrap_or("ready"),
            newest: NewestMessage::default(),
            requests: 0,
            same_fleet: None,
            same_config: None,
            unknown_workers: 0,
            fill: None,
        };
        self.reports.set(ReplicaReport {
            fleet: "main".to_owned(),
            connected: true,
            own: row("1"),
            others: heard.map(|_| row("2")).into_iter().collect(),
            hashes: replicas::FleetHashes::default(),
        });
        let (key, revision) = (self.store.key(), self.store.revision());
        let mut states = RouterStates::of("2");
        states.set(&key, revision, state.clone());
        let (router, bytes) = ("2".to_owned(), states.encode());
        let report = ReportKey::States { router };
        self.store.send(StoreEvent::Report { key: report, bytes });
        until("the report is seen", || {
            let view = self.handle.view();
            view.states.get("2").and_then(|states| states.get(&key)) == Some(&(revision, state.clone()))
        })
        .await;
    }

    /// Follows the entry, and returns the own state of it.
    pub(super) async fn own_state(&mut self) -> SubjectState {
        self.until_seen().await;
        self.run(Reloader::follow_agreed).await;
        let (states, key) = (self.handle.states(), self.store.key());
        let (revision, state) = states.get(&key).cloned().unwrap();
        assert_eq!(revision, self.store.revision());
        state
    }

    fn age(&mut self) {
        let follower = self.scenario.as_mut().unwrap().reloader.agreed.as_mut();
        follower.unwrap().age_staging(Duration::from_secs(61));
    }

    pub(super) async fn shadows(&self) -> Value {
        let page = self.scenario.as_ref().unwrap().page("/admin/policies").await;
        page["routes"][0]["shadows"].clone()
    }
}

pub(super) fn shadow(policy: &str) -> RouteChange {
    RouteChange {
        policy: policy.to_owned(),
        action: RouteAction::Shadow(None),
        route: None,
    }
}

pub(super) fn not_made(answer: &Result<RouteAnswer, RefusedRouteChange>) -> &str {
    match answer {
        Err(RefusedRouteChange::Fleet(why)) => why,
        other => panic!("it is not made: {other:?}"),
    }
}

/// Takes the change of an entry back.
pub(super) fn before(value: &mut Value) {
    value["staged"] = Value::Null;
}

/// Switches an entry to its change.
fn switch(value: &mut Value) {
    value["active"] = value["staged"].take();
    value.as_object_mut().unwrap().remove("undecided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_is_staged_then_switched_then_answered() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    assert!(stage.store.entry().1["staged"].is_object());
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.store.revision(), 2);
    assert_eq!(stage.shadows().await, json!(["random"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_switch_does_not_replace_the_give_up_of_another_router_that_came_between() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    stage.hold().await;
    let key = stage.store.key();
    while !stage.handle.is_proposed(&key) {
        let answer = stage.round("random").await;
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }
    stage.store.put_other(before);
    stage.store.reports.add_permits(1_000);
    let answer = stage.answer().await;
    assert!(not_made(&answer).contains("stays as it is"), "{answer:?}");
    assert_eq!(stage.store.entry().0, "2");
    assert_eq!(stage.shadows().await, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_give_up_does_not_replace_the_switch_of_another_router_that_came_between() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    stage.hold().await;
    stage.age();
    // This router has not looked at the entry, so that it has not staged it either.
    let answer = stage
        .run(|reloader| reloader.change_route(&shadow("random")))
        .await;
    assert!(
        matches!(answer, Ok(None)),
        "the answer waits for the store: {answer:?}"
    );
    stage.store.put_other(switch);
    stage.store.reports.add_permits(1_000);
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.store.entry().0, "2");
    assert_eq!(stage.shadows().await, json!(["random"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_switch_that_the_store_accepted_without_an_answer_is_not_given_up_after_its_deadline() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    stage.store.set_answer(WriteAnswer::Never);
    let (key, switch) = (stage.store.key(), stage.until_switch().await);
    stage.age();
    let answer = stage.round("random").await;
    assert!(
        matches!(answer, Ok(None)),
        "the answer waits for the store: {answer:?}"
    );
    // The store had the switch.
    stage.store.put(&key, switch);
    stage.store.set_answer(WriteAnswer::Given);
    stage.until_switched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_switch_that_the_store_never_got_is_given_up_and_one_without_any_answer_may_be_made() {
    let mut stage = Stage::begin().await;
    for is_back in [true, false] {
        let revision = stage.store.revision() + 1;
        stage.until_revision(revision).await;
        stage.store.set_answer(WriteAnswer::Never);
        stage.until_switch().await;
        stage.age();
        let answer = stage.round("random").await;
        assert!(matches!(answer, Ok(None)), "it is given up: {answer:?}");
        if is_back {
            stage.store.set_answer(WriteAnswer::Given);
            let answer = stage.answer().await;
            assert!(not_made(&answer).contains("did not take it"), "{answer:?}");
            assert!(stage.store.entry().1["staged"].is_null());
        } else {
            stage.age();
            let answer = stage.answer().await;
            assert!(matches!(answer, Err(RefusedRouteChange::Alone(_))), "{answer:?}");
        }
        assert_eq!(stage.shadows().await, json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_restart_of_the_store_in_the_midst_of_a_switch_ends_in_the_switch() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    stage.store.set_answer(WriteAnswer::Lost);
    stage.until_revision(2).await;
    stage.store.send(StoreEvent::Lost("a test".to_owned()));
    until("the store is away", || !stage.handle.view().is_synced).await;
    let answer = stage.round("random").await;
    assert!(matches!(answer, Ok(None)), "it waits for the store: {answer:?}");
    stage.store.open_again();
    stage.until_switched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_staged_entry_of_a_router_that_ended_is_finished_by_the_same_change_and_replaced_by_another() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    let (key, (_, orphan)) = (stage.store.key(), stage.store.entry());
    stage.store.put_other(before);
    let answer = stage.answer().await;
    assert!(not_made(&answer).contains("stays as it is"), "{answer:?}");

    // Another router staged it, and ended.
    let revision = stage.store.put_by("2", &key, orphan.clone());
    stage.until_seen().await;
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    let (by, value) = stage.store.entry();
    assert_eq!((&*by, &value["active"]), ("1", &orphan["staged"]));
    assert_eq!(stage.store.revision(), revision + 1, "it is not staged again");

    let mut other = value;
    other["staged"] = orphan["active"].clone();
    stage.store.put_by("2", &key, other);
    stage.until_seen().await;
    let answer = stage.answer_to("round-robin").await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.store.entry().0, "1");
    assert_eq!(stage.shadows().await, json!(["random", "round-robin"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_whose_entry_is_removed_is_refused_and_the_next_one_is_made() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    let key = stage.store.key();
    stage.store.remove();
    until("the removal is seen", || stage.handle.view().revision(&key) == 2).await;
    let answer = stage.answer().await;
    assert!(not_made(&answer).contains("lost it"), "{answer:?}");
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(
        (stage.store.revision(), stage.shadows().await),
        (4, json!(["random"]))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_waits_until_this_router_follows_the_decision_before() {
    let mut stage = Stage::decided().await;
    // Another router makes a change that this one has not looked at.
    stage.store.put_other(|value| {
        let text = value["active"].to_string().replace("random", "round-robin");
        let components = value["active"]["components"].clone();
        value["active"] = serde_json::from_str(&text).unwrap();
        value["active"]["components"] = components;
    });
    stage.until_seen().await;
    let revision = stage.store.revision();
    for _ in 0..3 {
        let answer = stage
            .run(|reloader| reloader.change_route(&shadow("least-request")))
            .await;
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }
    assert_eq!(stage.store.revision(), revision, "nothing is staged");
    let answer = stage.answer_to("least-request").await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.shadows().await, json!(["round-robin", "least-request"]));
}

/// Lets an entry have other bytes of a policy that is in use here.
pub(super) fn other_bytes(value: &mut Value) {
    value["active"]["components"]["random"] = json!("0".repeat(64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_router_with_other_bytes_does_not_change_the_route_and_stages_a_change_that_ends_them() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    let file_policies = stage.store.entry().1["active"].clone();
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    stage.store.put_other(other_bytes);
    let state = stage.own_state().await;
    assert!(matches!(state, SubjectState::Refused(_)), "{state:?}");
    stage.other_reports(SubjectState::Applied).await;
    let (revision, decided) = (stage.store.revision(), stage.store.entry());
    for policy in ["round-robin", "least-request"] {
        let answer = stage.answer_to(policy).await;
        let why = not_made(&answer);
        assert!(
            why.contains("other bytes here") && why.contains("at another router"),
            "{why}"
        );
    }
    assert_eq!((stage.store.revision(), stage.store.entry()), (revision, decided));

    // Another router takes the shadow back.
    stage.store.put_other(|value| value["staged"] = file_policies);
    let state = stage.own_state().await;
    assert!(matches!(state, SubjectState::OnlyStaged(_)), "{state:?}");
    assert_eq!(stage.shadows().await, json!(["random"]), "it serves as before");
    stage.store.put_other(switch);
    assert_eq!(stage.own_state().await, SubjectState::Applied);
    assert_eq!(stage.shadows().await, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_over_a_decision_that_no_router_can_follow_is_staged_and_its_give_up_keeps_the_decision() {
    let mut stage = Stage::decided().await;
    stage.store.put_other(other_bytes);
    let state = stage.own_state().await;
    stage.other_reports(state).await;
    let decided = stage.store.entry().1["active"].clone();
    let revision = stage.store.revision();
    while stage.store.revision() == revision {
        let answer = stage.round("round-robin").await;
        assert!(matches!(answer, Ok(None)), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.until_seen().await;
    assert_eq!(stage.store.entry().1["active"], decided, "until the switch");
    stage
        .other_reports(SubjectState::Refused("a test".to_owned()))
        .await;
    let answer = stage.answer_to("round-robin").await;
    assert!(not_made(&answer).contains("`2` cannot stage it"), "{answer:?}");
    let (by, value) = stage.store.entry();
    assert_eq!(
        (&*by, &value["active"], &value["staged"]),
        ("1", &decided, &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_router_that_does_not_follow_the_decision_changes_alone_without_the_store_and_proposes_nothing() {
    let mut stage = Stage::apart().await;
    stage.store.send(StoreEvent::Lost("a test".to_owned()));
    until("the store is away", || !stage.handle.view().is_synced).await;
    let answer = stage.answer_to("round-robin").await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.shadows().await, json!(["random", "round-robin"]));
    assert!(!stage.handle.is_proposed(&stage.store.key()));
}
