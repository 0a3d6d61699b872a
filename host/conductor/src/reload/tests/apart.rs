//! Changes of a route beside decisions that this router does not follow, and beside changes of other routers.

use std::time::Duration;

use agreement::SubjectState;
use serde_json::json;

use super::staged::{Stage, not_made, other_bytes, shadow};

/// Time of a step of a change, and more.
const LATE: Duration = Duration::from_secs(61);

impl Stage {
    pub(super) async fn age_looks(&mut self, age: Duration) {
        self.run(move |reloader| reloader.agreed.as_mut().unwrap().age_looks(age))
            .await;
    }

    /// Requests a shadow until the change is staged.
    async fn until_staged(&mut self, policy: &'static str) {
        let revision = self.store.revision();
        for _ in 0..1_000 {
            let (by, value) = self.store.entry();
            if self.store.revision() > revision && by == "1" && value["staged"].is_object() {
                return;
            }
            let answer = self.round(policy).await;
            assert!(answer.is_ok(), "{answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: staged")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_router_that_hears_nobody_does_not_take_a_decision_for_abandoned_before_it_listened_for_long() {
    let mut stage = Stage::apart().await;
    let answer = stage.answer_to("round-robin").await;
    assert!(
        not_made(&answer).contains("other bytes here"),
        "no report: {answer:?}"
    );
    for heard in [Some("silent"), None] {
        stage.other_is(heard, SubjectState::Applied).await;
        let answer = stage.answer_to("round-robin").await;
        assert!(
            not_made(&answer).contains("other bytes here"),
            "{heard:?}: {answer:?}"
        );
    }
    stage.age_looks(LATE).await;
    stage.until_staged("round-robin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_that_waits_for_a_decision_which_this_router_does_not_follow_in_time_is_refused() {
    let mut stage = Stage::decided().await;
    stage.store.put_other(|value| {
        let components = value["active"]["components"].clone();
        let text = value["active"].to_string().replace("random", "round-robin");
        value["active"] = serde_json::from_str(&text).unwrap();
        value["active"]["components"] = components;
    });
    stage.until_seen().await;
    // Without a look at the entry.
    let change = || shadow("least-request");
    let answer = stage.run(move |reloader| reloader.change_route(&change())).await;
    assert!(matches!(answer, Ok(None)), "{answer:?}");
    stage.age_looks(LATE).await;
    let answer = stage.run(move |reloader| reloader.change_route(&change())).await;
    let answer = answer.map(|_| unreachable!());
    assert!(not_made(&answer).contains("after 60s"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_change_that_another_live_router_stages_is_replaced_by_a_different_one_only_once_it_is_late() {
    let mut stage = Stage::decided().await;
    stage.store.put_other(|value| {
        value["staged"] = value["active"].clone();
        value["staged"]["components"] = json!({});
    });
    stage.until_seen().await;
    stage.other_is(Some("ready"), SubjectState::Staged).await;
    let answer = stage.answer_to("round-robin").await;
    assert!(
        not_made(&answer).contains("`2` stages another change"),
        "{answer:?}"
    );
    stage.age_looks(LATE).await;
    stage.until_staged("round-robin").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_decision_that_no_router_can_follow_binds_none_whatever_they_can_stage() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    let file_policies = stage.store.entry().1["active"].clone();
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    let (key, (_, mut orphan)) = (stage.store.key(), stage.store.entry());
    other_bytes(&mut orphan);
    orphan["staged"] = file_policies;
    // Its author ended.
    stage.store.put_by("3", &key, orphan);
    let state = stage.own_state().await;
    let SubjectState::OnlyStaged(why) = &state else {
        panic!("{state:?}")
    };
    assert!(why.contains("other bytes here"), "{why}");
    stage.other_is(Some("ready"), SubjectState::Applied).await;
    let answer = stage.answer_to("round-robin").await;
    assert!(not_made(&answer).contains("other bytes here"), "{answer:?}");
    stage.other_is(Some("ready"), state).await;
    stage.until_staged("round-robin").await;
}
