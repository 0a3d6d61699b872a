//! Tests of shadow policies: their reports, and that they do not affect requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use proxy::record::{FileSpec, RecordFiles, RecordSpec, Recorder};
use proxy::{AssumedCache, ShadowReport};
use routing::{DecisionInput, Dialect, LeastLoaded, PolicyFault, Tier, Verdict};
use serde_json::json;

use crate::client::{chat, post, send};
use crate::eventually;
use crate::pair::engines::E2;
use crate::pair::{concurrent, prefilling, request};
use crate::policy::{Scripted, fault, pair, route};
use crate::router::{Builder, Router, router};
use crate::worker::{Worker, answered_by_hand, json as json_response};

async fn two_workers() -> ([Worker; 2], Builder) {
    let workers = [Worker::named("a").await, Worker::named("b").await];
    let [a, b] = &workers;
    let router = router().worker("a", &a.url()).worker("b", &b.url());
    (workers, router)
}

fn shadow(
    script: impl Fn(&DecisionInput<'_>) -> Result<Verdict, PolicyFault> + Send + Sync + 'static,
) -> Arc<Scripted> {
    Scripted::named("shadow", &[], &["load.requests", "prefix.any-tokens"], script)
}

fn report(router: &Router) -> ShadowReport {
    router.snapshot().shadows().remove(0)
}

fn result(router: &Router, wanted: &str) -> u64 {
    let report = report(router);
    let mut results = report.results.iter();
    results.find(|(result, _)| *result == wanted).unwrap().1
}

async fn requests(router: &Router, count: usize) {
    for _ in 0..count {
        send(router.address, chat()).await.text().await;
    }
}

#[tokio::test]
async fn agreement_is_counted_and_disagreements_are_reported() {
    let (workers, built) = two_workers().await;
    // Agrees on every second request.
    let shadow = shadow(|input| Ok(route((input.request.seq % 2) as u32)));
    let router = built.with(|builder| builder.shadows = vec![shadow]).start().await;
    requests(&router, 10).await;
    eventually("all were decided", || {
        result(&router, "agreed") + result(&router, "differed") == 10
    })
    .await;
    assert_eq!((result(&router, "agreed"), result(&router, "differed")), (5, 5));
    assert_eq!(
        (workers[0].received().len(), workers[1].received().len()),
        (10, 0),
        "it decides nothing"
    );
    let report = report(&router);
    assert_eq!(
        (report.policy.as_str(), report.pool.as_str(), report.dropped),
        ("shadow", "main", 0)
    );
    assert_eq!(report.disagreements.len(), 5);
    let last = &report.disagreements[4];
    assert_eq!((&*last.active.worker, &*last.shadow.worker), ("a", "b"));
    assert!(last.request.starts_with("req-"));
    let metric = r#"conductor_shadow_decisions_total{pool="main",route="*",policy="shadow",result="agreed"}"#;
    assert_eq!(router.metric(metric), 5.0);
}

#[tokio::test]
async fn a_shadow_sees_the_loads_as_they_were_before_the_request_was_booked() {
    let (_workers, built) = two_workers().await;
    // Copy of the control: if it saw the request's own booking, it would choose the other worker.
    let router = built
        .policy(Arc::new(LeastLoaded::default()))
        .with(|builder| builder.shadows = vec![Arc::new(LeastLoaded::default())])
        .start()
        .await;
    requests(&router, 50).await;
    eventually("all were decided", || {
        result(&router, "agreed") + result(&router, "differed") == 50
    })
    .await;
    assert_eq!(result(&router, "agreed"), 50);
}

/// Checks that a shadow sees the cache before the request is expected at its worker, whatever the active policy
/// queries.
async fn check_matches(active: Arc<Scripted>) {
    let seeing = shadow(|_| Ok(route(0)));
    let router = sent_twice(active, Arc::clone(&seeing)).await;
    let [first, second] = &seeing.shown()[..] else {
        panic!()
    };
    let matched = |shown: &[f64]| [shown[1], shown[3]];
    assert_eq!((matched(first), matched(second)), ([0.0, 0.0], [8.0, 0.0]));
    assert_eq!(
        (report(&router).matched, report(&router).ahead),
        ([8, 8], [12, 12])
    );
}

/// Starts a router and sends two requests of the same prompt, which are expected at the first of two workers. The
/// shadow is called for both.
async fn sent_twice(active: Arc<Scripted>, seeing: Arc<Scripted>) -> Router {
    let (_workers, built) = two_workers().await;
    let assumed = AssumedCache {
        tokens: 1_000,
        block_size: 4,
        lifetime: Duration::from_secs(60),
    };
    let router = built
        .policy(active)
        .with(crate::tokens::querying_worker)
        .with(|builder| {
            builder.expectation.assumed = Some(assumed);
            builder.shadows = vec![seeing];
        })
        .start()
        .await;
    for _ in 0..2 {
        let body = r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9,10]}"#;
        send(router.address, post("/v1/completions", body))
            .await
            .text()
            .await;
    }
    eventually("it decided both", || result(&router, "agreed") == 2).await;
    router
}

#[tokio::test]
async fn a_shadow_sees_the_matches_as_they_were_before_the_request_was_expected_anywhere() {
    check_matches(Scripted::first(&[], &["prefix.any-tokens"])).await;
    check_matches(Scripted::first(&["request.prompt-tokens"], &[])).await;
}

#[tokio::test]
async fn a_shadow_that_queries_by_an_import_sees_the_same_matches() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let reporting = Arc::clone(&reported);
    let importing = Scripted::named("shadow", &[], &["load.requests"], move |input| {
        reporting.lock().unwrap().push(input.queries.matched(Tier::Disk));
        Ok(route(0))
    });
    let active = Scripted::first(&["request.prompt-tokens"], &[]);
    let _router = sent_twice(active, importing).await;
    assert_eq!(*reported.lock().unwrap(), [[0, 0], [8, 0]]);
}

#[tokio::test]
async fn a_spinning_shadow_delays_no_request_and_what_does_not_fit_is_dropped_and_counted() {
    let (_workers, built) = two_workers().await;
    // The shadow blocks on the first request until all are answered. If one waited for it, the test would not end.
    let unanswered = Arc::new(AtomicBool::new(true));
    let until = Arc::clone(&unanswered);
    let spinning = shadow(move |_| {
        while until.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Ok(route(0))
    });
    let router = built
        .with(|builder| builder.shadows = vec![spinning])
        .start()
        .await;
    requests(&router, 300).await;
    // The queue holds 256, and the thread has taken a few of the requests.
    let decided = result(&router, "agreed");
    let dropped = report(&router).dropped;
    unanswered.store(false, Ordering::Relaxed);
    assert_eq!(decided, 0, "the shadow spun all the while");
    assert!(
        dropped + decided + 257 >= 300 && dropped > 0,
        "{dropped} {decided}"
    );
}

#[tokio::test]
async fn a_shadow_that_faults_rests_and_the_policy_in_force_knows_nothing_of_it() {
    let (_workers, built) = two_workers().await;
    let router = built
        .with(|builder| builder.shadows = vec![shadow(|_| Err(fault()))])
        .start()
        .await;
    requests(&router, 30).await;
    let queries = || result(&router, "fault") + result(&router, "circuit-open");
    eventually("all were decided", || queries() == 30).await;
    assert!(result(&router, "fault") >= 5 && result(&router, "circuit-open") > 0);
    assert_eq!(
        router.metric(r#"conductor_policy_faults_total{policy="shadow",kind="trap"}"#),
        0.0
    );
    assert_eq!(router.fallbacks("scripted"), [0.0; 3]);
}

#[tokio::test]
async fn a_row_that_is_not_there_is_a_fault_and_a_pass_is_reported() {
    let (_workers, built) = two_workers().await;
    let odd = shadow(|input| match input.request.seq {
        1 => Ok(route(2)),
        2 => Ok(Verdict::Pass),
        _ => Ok(route(0)),
    });
    let router = built.with(|builder| builder.shadows = vec![odd]).start().await;
    requests(&router, 3).await;
    eventually("all were decided", || result(&router, "agreed") == 1).await;
    assert_eq!((result(&router, "fault"), result(&router, "passed")), (1, 1));
}

#[tokio::test]
async fn results_of_a_shadow_outlive_a_reload() {
    let (_workers, built) = two_workers().await;
    let built = built.with(|builder| builder.shadows = vec![shadow(|_| Ok(route(0)))]);
    let mut router = built.clone().start().await;
    requests(&router, 2).await;
    eventually("both were decided", || result(&router, "agreed") == 2).await;
    router.change(built);
    assert_eq!(result(&router, "agreed"), 2);
}

#[tokio::test]
async fn results_of_another_version_of_a_shadow_are_not_those_of_the_active_one() {
    let (_workers, built) = two_workers().await;
    let built = built.with(|builder| builder.shadows = vec![shadow(|_| Ok(route(1)))]);
    let mut router = built.clone().start().await;
    requests(&router, 2).await;
    eventually("both were decided", || result(&router, "differed") == 2).await;
    router.change(built.with(|builder| {
        builder.shadows = vec![shadow(|_| Ok(route(1)))];
        builder.shadow_version = "another";
    }));
    let fresh = report(&router);
    assert!(fresh.results.iter().all(|(_, count)| *count == 0), "{fresh:?}");
    assert_eq!((fresh.ahead, fresh.disagreements.len()), ([0, 0], 0));
    assert_eq!((fresh.predicted, fresh.decision_seconds), (None, None));
    let metric =
        r#"conductor_shadow_decisions_total{pool="main",route="*",policy="shadow",result="differed"}"#;
    assert_eq!(router.metric(metric), 2.0, "the metrics count on");
    requests(&router, 1).await;
    eventually("it was decided", || result(&router, "differed") == 1).await;
}

/// Splits a request between the two workers, while both are candidates.
fn first_pair(input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
    Ok(if input.ids.len() == 2 {
        pair(1, 0)
    } else {
        route(0)
    })
}

#[tokio::test]
async fn a_shadow_of_a_pool_that_splits_requests_chooses_both_workers() {
    let prefill = Worker::named("p").await;
    let decode = Worker::named("d").await;
    let roles = &["worker.role"];
    let by_leg = Scripted::named("by-leg", &[], &[], |_| Ok(route(0)));
    let router = router()
        .prefill("p", &prefill.url())
        .decode("d", &decode.url())
        .pd(Dialect::Nixl)
        .policy(Scripted::named("pairs", &[], roles, first_pair))
        .with(|builder| {
            let both = Scripted::named("both", &[], roles, first_pair);
            builder.shadows = vec![both, by_leg.clone()];
        })
        .start()
        .await;
    send(router.address, chat()).await.rest().await;
    let agreed = |at: usize| router.snapshot().shadows()[at].results[0].1;
    eventually("both agree", || agreed(0) == 1 && agreed(1) == 1).await;
    assert_eq!(by_leg.phases(), [routing::Phase::Prefill, routing::Phase::Decode]);
}

#[tokio::test]
async fn a_request_is_offered_to_its_shadows_once_although_a_failure_blames_no_worker() {
    let prefill = prefilling().await;
    let (bootstrap, engine) = concurrent::bootstrap(concurrent::E1).await;
    let (decode, mut decodes) = answered_by_hand().await;
    let offered: Arc<Mutex<Vec<u64>>> = Arc::default();
    let offers = Arc::clone(&offered);
    let shadow = Scripted::named("seqs", &[], &["worker.role"], move |input| {
        offers.lock().unwrap().push(input.request.seq);
        Ok(pair(0, 1))
    });
    let router = concurrent::one_pair(&prefill, &bootstrap, &decode)
        .with(|builder| builder.shadows = vec![shadow])
        .start()
        .await;
    let answered = async {
        let first = decodes.recv().await.unwrap();
        *engine.lock().unwrap() = Some(E2);
        first.send(json_response(500, "no such engine")).unwrap();
        let again = decodes.recv().await.unwrap();
        again.send(json_response(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), answered);
    answer.text().await;
    assert_eq!(prefill.received().len(), 2);
    // Another offer of the first request would come before that of the second.
    let next = async {
        let answer = decodes.recv().await.unwrap();
        answer.send(json_response(200, "d")).unwrap();
    };
    let (answer, ()) = futures_util::join!(send(router.address, request()), next);
    answer.text().await;
    let seqs = || offered.lock().unwrap().clone();
    eventually("both were offered", || seqs().first() < seqs().last()).await;
    assert_eq!(seqs().len(), 2, "{:?}", seqs());
}

#[tokio::test]
async fn every_decision_is_a_line_of_the_file_that_is_wished_for() {
    let (_workers, built) = two_workers().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shadows.jsonl");
    let recorder = Recorder::new(&mut Registry::default());
    let spec = FileSpec {
        path: path.clone(),
        max_bytes: 1 << 20,
        keep: 1,
    };
    let files = RecordFiles {
        shadows: Some(spec),
        ..RecordFiles::default()
    };
    recorder.apply(recorder.plan(files).unwrap());
    let shadow = shadow(|input| match input.request.seq {
        1 => Ok(route(0)),
        2 => Ok(route(1)),
        _ => Err(fault()),
    });
    let router = built
        .with(|builder| {
            builder.shadows = vec![shadow];
            builder.record = RecordSpec::nothing(Arc::clone(&recorder));
            builder.decision_headers = false;
        })
        .start()
        .await;
    requests(&router, 3).await;
    eventually("all were decided", || {
        ["agreed", "differed", "fault"].map(|wanted| result(&router, wanted)) == [1; 3]
    })
    .await;
    // The last line is counted before it is handed over.
    let lines = || {
        recorder.close();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<serde_json::Value>>()
    };
    eventually("all are written", || lines().len() == 4).await;
    let lines = lines();
    assert_eq!(lines[0]["log"]["schema"], 1);
    let reported: Vec<_> = lines[1..]
        .iter()
        .map(|line| &line["shadow"])
        .map(|line| {
            (
                &line["result"],
                &line["active"]["worker"],
                &line["shadow"]["worker"],
                &line["fault"],
            )
        })
        .map(|reported| format!("{reported:?}"))
        .collect();
    let expected = [
        (json!("agreed"), json!("a"), json!("a"), json!(null)),
        (json!("differed"), json!("a"), json!("b"), json!(null)),
        (json!("fault"), json!("a"), json!(null), json!("trap")),
    ];
    assert_eq!(
        reported,
        expected.each_ref().map(|reported| format!("{reported:?}"))
    );
    let second = &lines[2]["shadow"];
    assert_eq!(second["active"]["policy"], "scripted");
    assert_eq!(second["shadow"]["policy"], "shadow");
    assert!(second["active"]["version"].is_string() && second["shadow"]["version"].is_string());
    assert_eq!((&second["seq"], &second["route"]), (&json!(2), &json!("*")));
    assert!(second["shadow"]["tokens-ahead"].as_u64() > Some(0), "{second}");
    assert_eq!(second["shadow"]["matched-tokens"], json!(null), "it is unknown");
}
