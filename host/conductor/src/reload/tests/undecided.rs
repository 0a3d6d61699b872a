//! First change of a route: nothing is decided on it before the switch.

use std::time::Duration;

use agreement::SubjectState;
use serde_json::{Value, json};

use super::staged::{Stage, before, not_made, other_bytes};

impl Stage {
    /// Looks at the entry until this router reports a state of it.
    async fn until_state(&mut self, expected: SubjectState) {
        for _ in 0..1_000 {
            match self.own_state().await {
                // A policy is being loaded.
                SubjectState::Working => tokio::time::sleep(Duration::from_millis(20)).await,
                state => return assert_eq!(state, expected),
            }
        }
        panic!("never: {expected:?}")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_first_change_of_a_route_that_is_not_made_decides_nothing() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    let cannot = SubjectState::Refused("a test".to_owned());
    stage.other_is(Some("ready"), cannot).await;
    let answer = stage.answer().await;
    assert!(not_made(&answer).contains("`2` cannot stage it"), "{answer:?}");
    let (_, value) = stage.store.entry();
    assert_eq!(
        (&value["staged"], &value["undecided"]),
        (&Value::Null, &json!(true))
    );
    // A router with other bytes than the author keeps them.
    stage.store.put_other(other_bytes);
    stage.until_state(SubjectState::Applied).await;
    stage.other_is(None, SubjectState::Applied).await;
    let answer = stage.answer().await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(stage.store.entry().1.get("undecided"), None);
    assert_eq!(stage.shadows().await, json!(["random"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_router_keeps_its_policies_until_the_first_switch_of_another_one() {
    let mut stage = Stage::begin().await;
    stage.until_revision(1).await;
    // The other router has a shadow from before the fleet, and retracts it.
    stage.store.put_other(|value| {
        let file_policies = value["active"].take();
        value["active"] = value["staged"].take();
        value["staged"] = file_policies;
    });
    stage.until_state(SubjectState::Staged).await;
    assert_eq!(stage.shadows().await, json!([]));
    stage.store.put_other(before);
    stage.until_state(SubjectState::Applied).await;
    assert_eq!(stage.shadows().await, json!([]), "the change is given up");
    stage.store.put_other(|value| {
        value.as_object_mut().unwrap().remove("undecided");
    });
    stage.until_state(SubjectState::Applied).await;
    assert_eq!(stage.shadows().await, json!(["random"]), "the fleet decides");
}
