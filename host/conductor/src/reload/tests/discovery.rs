//! Workers of a source that are refused.

use std::time::{Duration, Instant, SystemTime};

use runtime_overrides::DrainChange;

use super::agreed::{follow_store, until};
use super::fleet_store::FleetStore;
use super::*;
use crate::reload::refused_workers::RETRY;

const SOURCE: &str = "[discovery.found]\npool = \"chat\"\nfile-sd = \"targets.json\"\nconfirm = 1\n";

impl Scenario {
    /// Returns a scenario with a source that lists no worker.
    async fn with_source() -> Self {
        let scenario = Self::begin().await;
        fs::write(scenario.path("conductor.toml"), format!("{}{SOURCE}", before())).unwrap();
        fs::write(scenario.path("targets.json"), "[]").unwrap();
        let (scenario, outcome) = scenario.reload(None).await;
        assert!(outcome.has_changes(), "{outcome:?}");
        scenario
    }

    /// Lets the source list these workers.
    async fn list(&self, names: &[&str]) {
        let saving = self.path("saving");
        fs::write(&saving, format!("[{{\"targets\": {names:?}}}]")).unwrap();
        fs::rename(saving, self.path("targets.json")).unwrap();
        let started = Instant::now();
        let is_listed = || {
            let found = self.reloader.live.sources.workers([("found", "chat")]);
            let found = found.iter().flat_map(|source| &*source.workers);
            found.map(|worker| worker.name()).eq(names.iter().copied())
        };
        while !is_listed() {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "never listed: {names:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs a look without a request. Returns the names of the discovered workers that are in use after it.
    async fn look(self, fault: Option<PlanStep>) -> (Self, Vec<String>) {
        let look = move |reloader: &mut Reloader| {
            reloader.steps.fault = fault;
            drop(reloader.round(Some(SystemTime::now())));
            let names = reloader.active.base.origins.keys();
            names.map(|url| url.replace("http://", "")).collect()
        };
        self.run(look).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refused_workers_are_used_when_they_are_listed_again() {
    let scenario = Scenario::with_source().await;
    scenario.list(&["a:1"]).await;
    let (scenario, used) = scenario.look(Some(PlanStep::RequestPath)).await;
    assert_eq!(used, [""; 0]);
    scenario.list(&["a:1", "b:1"]).await;
    let (scenario, used) = scenario.look(None).await;
    assert_eq!(used, ["a:1", "b:1"]);
    scenario.list(&["a:1"]).await;
    let (_scenario, used) = scenario.look(None).await;
    assert_eq!(used, ["a:1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refused_workers_are_tried_again_after_a_pause_or_at_a_request() {
    let scenario = Scenario::with_source().await;
    scenario.list(&["a:1"]).await;
    let (scenario, _) = scenario.look(Some(PlanStep::RequestPath)).await;
    let (scenario, used) = scenario.look(None).await;
    assert_eq!(used, [""; 0], "the same plan is not made at each look");
    let age = |reloader: &mut Reloader| {
        let refused = reloader.refused_discovery.as_mut().unwrap();
        refused.tried_at = refused.tried_at.checked_sub(RETRY).unwrap();
    };
    let (scenario, ()) = scenario.run(age).await;
    let (scenario, used) = scenario.look(None).await;
    assert_eq!(used, ["a:1"]);

    scenario.list(&["a:1", "b:1"]).await;
    let (scenario, _) = scenario.look(Some(PlanStep::RequestPath)).await;
    let (scenario, _) = scenario.reload(None).await;
    assert_eq!(scenario.look(None).await.1, ["a:1", "b:1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_drained_worker_that_is_listed_again_is_drained_from_its_first_request_on() {
    let mut scenario = Scenario::with_source().await;
    let (store, end) = FleetStore::new();
    let handle = follow_store(&mut scenario, end, replica_plane::ReplicaReports::default()).await;
    scenario.list(&["a:1"]).await;
    let (scenario, _) = scenario.look(None).await;
    let drain = |reloader: &mut Reloader| {
        let pools = &reloader.active.base.config.pools;
        let mut workers = pools.iter().flat_map(|pool| &pool.workers);
        let found = workers.find(|worker| worker.url == "http://a:1").unwrap();
        let drain = InstanceChange::Drain(DrainChange {
            pool: "chat".to_owned(),
            worker: found.name.clone(),
            drains: true,
            reason: None,
        });
        reloader.change_instance(&drain).map(drop)
    };
    let (scenario, answer) = scenario.run(drain).await;
    assert!(answer.is_ok(), "{answer:?}");
    until("it is decided", || {
        store.revision() == 1 && !handle.is_proposed(&store.key())
    })
    .await;
    scenario.list(&[]).await;
    let (scenario, used) = scenario.look(None).await;
    assert_eq!(used, [""; 0]);
    scenario.list(&["a:1"]).await;
    let (_scenario, drains) = scenario
        .run(|reloader| {
            // Without the look at the decisions.
            reloader.reload_discovered();
            let pools = &reloader.active.config.pools;
            let mut workers = pools.iter().flat_map(|pool| &pool.workers);
            workers
                .find(|worker| worker.url == "http://a:1")
                .map(|worker| worker.drain)
        })
        .await;
    assert_eq!(drains, Some(true));
}
