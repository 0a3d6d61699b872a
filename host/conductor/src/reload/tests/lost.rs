//! Drained instances that routers of a fleet lose.

use std::time::Duration;

use agreement::SubjectState;
use runtime_overrides::DrainChange;

use super::agreed::until;
use super::staged::Stage;
use super::*;

impl Stage {
    /// Returns a router of a fleet that has drained `w1`.
    async fn with_drained() -> Self {
        let mut stage = Self::begin().await;
        let drain = InstanceChange::Drain(DrainChange {
            pool: "chat".to_owned(),
            worker: "w1".to_owned(),
            drains: true,
            reason: None,
        });
        let answer = stage.run(move |reloader| reloader.change_instance(&drain)).await;
        assert!(answer.is_ok(), "{answer:?}");
        until("the drain is decided", || stage.store.revision() == 1).await;
        stage.until_seen().await;
        stage
    }

    /// Reloads the file without `w1`.
    async fn lose(&mut self) {
        let text = before().replace(&workers(&["w0", "w1"]), &workers(&["w0"]));
        let scenario = self.scenario.take().unwrap();
        fs::write(scenario.path("conductor.toml"), text).unwrap();
        let (scenario, outcome) = scenario.reload(None).await;
        assert!(outcome.has_changes(), "{outcome:?}");
        self.scenario = Some(scenario);
    }

    /// Looks at the decisions. Returns whether the drain is still one.
    async fn is_drained(&mut self) -> bool {
        let key = self.store.key();
        self.run(Reloader::follow_agreed).await;
        until("own decisions are written", || !self.handle.is_proposed(&key)).await;
        self.until_seen().await;
        self.store.entry().1["now"]["drain"] == true
    }
}

/// Time for which an instance must be lost, and more.
const LONG: Duration = Duration::from_mins(11);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_router_that_hears_no_other_one_keeps_the_drain_of_a_lost_instance_for_a_while() {
    let mut stage = Stage::with_drained().await;
    stage.lose().await;
    assert!(stage.is_drained().await);
    stage.other_is(Some("starting"), elsewhere()).await;
    assert!(
        stage.is_drained().await,
        "one that starts may not know its workers yet"
    );
    stage.age_looks(LONG).await;
    assert!(!stage.is_drained().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_drain_of_an_instance_that_each_ready_router_lost_ends_and_that_of_others_stays() {
    let mut stage = Stage::with_drained().await;
    stage.lose().await;
    stage.other_is(Some("ready"), SubjectState::Applied).await;
    stage.age_looks(LONG).await;
    assert!(stage.is_drained().await, "the other one has it");
    stage.other_is(Some("silent"), SubjectState::Applied).await;
    assert!(stage.is_drained().await, "it may have it still");
    stage.other_is(Some("starting"), elsewhere()).await;
    assert!(stage.is_drained().await, "its sources may have it");
    stage.other_is(Some("ready"), elsewhere()).await;
    assert!(!stage.is_drained().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_drain_of_an_instance_that_a_restarted_router_never_had_ends_after_a_while() {
    let mut stage = Stage::with_drained().await;
    stage.lose().await;
    stage
        .run(|reloader| reloader.agreed.as_mut().unwrap().forget_lost())
        .await;
    stage.other_is(Some("ready"), elsewhere()).await;
    assert!(stage.is_drained().await, "it may come with the others' files");
    stage.age_looks(LONG).await;
    assert!(!stage.is_drained().await);
}

fn elsewhere() -> SubjectState {
    SubjectState::Elsewhere("no such instance".to_owned())
}
