//! Policies that pass the trial of a load and misbehave once they serve: no client notices, and the last good version
//! decides.

use harness::{HOSTILE, recovers_after, sends_to};

use super::{Stage, Traffic};

/// Rests so long that no probe falls into a test.
const NO_PROBES: &str = "circuit = { faults = 5, share = 0.05, open-time = \"1h\" }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_good_version_decides_while_a_bad_one_rests_until_good_bytes_come() {
    let stage = Stage::start(NO_PROBES, &sends_to(2, 1).unwrap()).await;
    stage.all_by("w2").await;
    let good = stage.mine().await["version"].clone();
    let traffic = Traffic::start(&stage.router.client);

    let bad = stage.swap(&HOSTILE[0].component().unwrap()).await["version"].clone();
    let mine = stage
        .shows("the good version decides, after five faults", |mine| {
            let faults = mine["versions"][0]["faults"]["deadline"].as_u64();
            mine["decides"] == good && faults >= Some(5)
        })
        .await;
    assert_eq!(
        mine["version"], bad,
        "the bad one is still the one active: {mine}"
    );
    assert_eq!(mine["versions"][0]["circuit"]["state"], "open", "{mine}");
    traffic.goes_on(20).await;
    stage.all_by("w2").await;

    let labels = format!("policy=\"mine\",version={bad}");
    assert_eq!(
        stage
            .metric(&format!("conductor_policy_circuit_openings_total{{{labels}}}"))
            .await,
        1.0
    );
    assert_eq!(
        stage
            .metric(&format!(
                "conductor_policy_circuit_state{{{labels},state=\"open\"}}"
            ))
            .await,
        1.0
    );
    assert_eq!(
        stage
            .metric(&format!("conductor_policy_active{{{labels}}}"))
            .await,
        1.0
    );
    harness::eventually("it is counted as a rollback", || async {
        let page = stage.router.admin.get("/metrics").await.unwrap().text();
        page.contains("conductor_policy_rollbacks_total{policy=\"mine\",cause=\"circuit\"} 1\n")
    })
    .await;

    let mine = stage.swap(&sends_to(1, 2).unwrap()).await;
    assert_eq!(mine["decides"], mine["version"]);
    assert_eq!(mine["versions"][0]["circuit"]["state"], "closed");
    stage.all_by("w1").await;
    assert_eq!(traffic.end().await, 0, "failed requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_version_decides_again_by_itself() {
    let circuit = "circuit = { faults = 3, rest = \"20ms\", longest-rest = \"100ms\" }";
    let stage = Stage::start(circuit, &sends_to(2, 1).unwrap()).await;
    let traffic = Traffic::start(&stage.router.client);
    let recovered = stage.swap(&recovers_after(6, 0).unwrap()).await["version"].clone();
    stage
        .shows("its circuit opened and closed", |mine| {
            mine["decides"] == recovered && mine["versions"][0]["circuit"]["openings"].as_u64() >= Some(1)
        })
        .await;
    stage.all_by("w0").await;
    assert_eq!(traffic.end().await, 0, "failed requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_under_any_hostile_policy() {
    let good = sends_to(2, 1).unwrap();
    let stage = Stage::start(NO_PROBES, &good).await;
    let good_id = stage.mine().await["version"].clone();
    let traffic = Traffic::start(&stage.router.client);
    for hostile in HOSTILE {
        let name = hostile.name;
        let bad = stage.swap(&hostile.component().unwrap()).await["version"].clone();
        if hostile.is_faulty {
            let what = format!("{name}: the good version decides");
            let mine = stage.shows(&what, |mine| mine["decides"] == good_id).await;
            assert_eq!(mine["version"], bad, "{name}: {mine}");
            stage.all_by("w2").await;
        } else {
            traffic.goes_on(100).await;
        }
        let mine = stage.swap(&good).await;
        assert_eq!(mine["decides"], good_id, "{name}: {mine}");
        stage.all_by("w2").await;
        println!("{name}: {}", mine["versions"][1]["faults"]);
    }
    assert_eq!(traffic.end().await, 0, "failed requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_good_version_the_native_fallback_decides() {
    let wrong = HOSTILE
        .iter()
        .find(|hostile| hostile.name == "wrong index")
        .unwrap();
    let stage = Stage::start(NO_PROBES, &wrong.component().unwrap()).await;
    let traffic = Traffic::start(&stage.router.client);
    let mine = stage
        .shows("the fallback decides", |mine| mine["decides"] == "fallback")
        .await;
    let faults = &mine["versions"][0]["faults"];
    assert!(
        faults["invalid-verdict"].as_u64() >= Some(5),
        "found by the router alone: {mine}"
    );
    // A request that chose the version before its circuit opened may still call it.
    assert_eq!(traffic.end().await, 0, "failed requests");
    let calls = stage.mine().await["calls"].clone();
    let traffic = Traffic::start(&stage.router.client);
    traffic.goes_on(50).await;
    assert_eq!(stage.mine().await["calls"], calls, "it is not even called");
    assert_eq!(traffic.end().await, 0, "failed requests");
}
