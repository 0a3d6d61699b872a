//! Tests of queries of workers besides requests, and of the effects of their responses.

use std::time::Duration;

use http::StatusCode;
use proxy::{Authorization, ProbeSpec, ScrapeSpec};
use routing::{DpRank, Role};

use crate::client::{chat, send};
use crate::clock::StoppedClock;
use crate::eventually;
use crate::policy::Scripted;
use crate::router::{Builder, router, spec};
use crate::worker::{Received, Worker, json, whole};

const METRICS: &str = "vllm:num_requests_running{engine=\"0\"} 3.0\n\
    vllm:num_requests_running{engine=\"1\"} 5.0\n\
    vllm:num_requests_waiting{engine=\"0\"} 2.0\n\
    vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
    vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n";

fn often() -> ScrapeSpec {
    ScrapeSpec {
        interval: Duration::from_millis(10),
        timeout: Duration::from_secs(10),
        ..ScrapeSpec::default()
    }
}

/// Starts a worker with this metrics page, or with SGLang's page of loads.
async fn reporting(path: &'static str, page: &'static str) -> Worker {
    Worker::start(move |request: Received| async move {
        match request.uri.path() {
            requested if requested == path => whole(200, "text/plain", page),
            "/metrics" | "/get_load" => json(404, "{}"),
            _ => json(200, "answer"),
        }
    })
    .await
}

const COLUMNS: [&str; 5] = [
    "engine.running",
    "engine.waiting",
    "engine.kv-usage",
    "engine.kv-tokens",
    "engine.age-ms",
];

/// Returns the values of these columns once the named worker has reported its load.
async fn shown(router: Builder, reported: &str, columns: &[&str]) -> Vec<f64> {
    let policy = Scripted::first(&[], columns);
    let router = router
        .policy(policy.clone())
        .with(|builder| builder.scrape = Some(often()))
        .start()
        .await;
    let scrapes = format!(r#"conductor_worker_scrapes_total{{worker="{reported}",result="reported"}}"#);
    eventually("it reported", || router.metric(&scrapes) > 0.0).await;
    send(router.address, chat()).await.text().await;
    policy.shown().swap_remove(0)
}

#[tokio::test]
async fn policies_see_the_load_reports_of_engines() {
    let worker = reporting("/metrics", METRICS).await;
    let shown = shown(router().worker("a", &worker.url()), "a", &COLUMNS).await;
    assert_eq!(shown[..3], [8.0, 2.0, 0.5], "both ranks of the one worker");
    assert!(shown[3].is_nan(), "it did not report it");
    assert!(shown[4] >= 0.0, "{}", shown[4]);
}

#[tokio::test]
async fn ranks_behind_one_url_are_distinguished_on_one_page() {
    let worker = reporting("/metrics", METRICS).await;
    let ranked = |rank: u16| {
        let mut spec = spec(Role::Mixed, &format!("a@{rank}"), &worker.url());
        spec.rank = Some(DpRank(rank));
        spec
    };
    let router = router().specified(ranked(0)).specified(ranked(1));
    assert_eq!(shown(router, "a@1", &["engine.running"]).await, [3.0, 5.0]);
}

#[tokio::test]
async fn sglang_reports_on_a_page_of_its_own() {
    let page = r#"[{"dp_rank":0,"num_reqs":7,"num_waiting_reqs":3,"num_tokens":99}]"#;
    let worker = reporting("/get_load", page).await;
    let shown = shown(router().worker("a", &worker.url()), "a", &COLUMNS).await;
    assert_eq!(shown[..2], [4.0, 3.0]);
}

#[tokio::test]
async fn load_is_queried_with_the_pools_key() {
    let worker = Worker::start(|request: Received| async move {
        let has_key = request.has_key("k");
        match request.uri.path() {
            _ if !has_key => json(401, "{}"),
            "/metrics" => json(404, "{}"),
            "/get_load" => json(200, r#"[{"dp_rank":0,"num_reqs":7,"num_waiting_reqs":3}]"#),
            _ => json(200, "answer"),
        }
    })
    .await;
    let router = router()
        .worker("a", &worker.url())
        .with(|with| with.authorization = Authorization::bearer("k").unwrap());
    assert_eq!(shown(router, "a", &["engine.running"]).await, [4.0]);
}

#[tokio::test]
async fn an_engine_whose_scrapes_are_turned_off_has_an_unknown_load() {
    let worker = reporting("/metrics", METRICS).await;
    let policy = Scripted::first(&[], &COLUMNS);
    let built = router().worker("a", &worker.url()).policy(policy.clone());
    let scraped = built.clone().with(|builder| builder.scrape = Some(often()));
    let mut router = scraped.start().await;
    let load = router.worker("a").load().clone();
    eventually("it reported", || load.engine().is_some()).await;
    router.change(built);
    eventually("the report is forgotten", || load.engine().is_none()).await;
    send(router.address, chat()).await.text().await;
    assert!(policy.shown()[0].iter().all(|number| number.is_nan()));
}

#[tokio::test]
async fn before_an_engine_reports_its_load_is_unknown() {
    let worker = Worker::named("a").await;
    let policy = Scripted::first(&[], &COLUMNS);
    let router = router()
        .worker("a", &worker.url())
        .policy(policy.clone())
        .start()
        .await;
    send(router.address, chat()).await.text().await;
    assert!(policy.shown()[0].iter().all(|number| number.is_nan()));
}

#[tokio::test]
async fn a_worker_that_never_answers_its_probes_delays_no_others() {
    let hung = Worker::start(|_| std::future::pending()).await;
    let well = Worker::named("b").await;
    let router = router()
        .worker("a", &hung.url())
        .worker("b", &well.url())
        .with(|builder| {
            builder.health.probe = Some(ProbeSpec {
                interval: Duration::from_millis(10),
                timeout: Duration::from_secs(100),
                ..ProbeSpec::default()
            });
        })
        .start_at_once()
        .await;
    eventually("the other is probed again and again", || {
        router.metric(r#"conductor_worker_probes_total{worker="b",result="passed"}"#) >= 3.0
    })
    .await;
    assert!(hung.received().len() <= 1, "one at a time");
}

#[tokio::test]
async fn another_interval_of_probes_counts_at_once() {
    let worker = Worker::named("a").await;
    let probed_every = |interval: Duration| {
        router().worker("a", &worker.url()).with(|builder| {
            builder.health.probe = Some(ProbeSpec {
                interval,
                ..ProbeSpec::default()
            });
        })
    };
    let mut router = probed_every(Duration::from_secs(3_600)).start().await;
    // The second probe still follows soon, since the worker was pending at the first.
    eventually("its interval has begun", || worker.paths().len() == 2).await;
    router.change(probed_every(Duration::from_secs(600)));
    eventually("it is probed again", || worker.paths().len() == 3).await;
}

#[tokio::test]
async fn a_probe_that_gets_no_answer_proves_nothing_while_requests_do() {
    let busy = Worker::start(|request: Received| async move {
        if request.uri.path() == "/health" {
            std::future::pending::<()>().await;
        }
        json(200, "a")
    })
    .await;
    let router = router()
        .worker("a", &busy.url())
        .with(|builder| {
            builder.health.probe = Some(ProbeSpec {
                interval: Duration::from_millis(10),
                timeout: Duration::from_secs(600),
                unhealthy_after: 1,
                ..ProbeSpec::default()
            });
        })
        .start_at_once()
        .await;
    // A probe times out only after an answer to a request.
    let clock = StoppedClock::stop();
    let probes = || busy.paths().iter().filter(|path| *path == "/health").count();
    let timeouts = || router.metric(r#"conductor_worker_probes_total{worker="a",result="timeout"}"#);
    for count in 1..=2 {
        let probed = eventually("it is probed", || probes() == count);
        clock.pass_until(Duration::from_millis(100), probed).await;
        assert_eq!(send(router.address, chat()).await.text().await, "a");
        clock.pass(Duration::from_secs(601)).await;
        eventually("the probe has timed out", || timeouts() == count as f64).await;
    }
    let ejected = r#"conductor_worker_ejections_total{worker="a",cause="probe"}"#;
    assert_eq!(router.metric(ejected), 0.0);
}

#[tokio::test]
async fn a_worker_whose_connections_are_all_in_use_is_still_probed() {
    let busy = Worker::start(|request: Received| async move {
        match request.uri.path() {
            "/health" => json(200, "{}"),
            "/metrics" => whole(200, "text/plain", METRICS),
            _ => std::future::pending().await,
        }
    })
    .await;
    let router = router()
        .worker("a", &busy.url())
        .with(|builder| {
            builder.connections.most = Some(1);
            builder.limits.connect_timeout = Duration::from_millis(500);
            builder.scrape = Some(often());
            builder.health.probe = Some(ProbeSpec {
                interval: Duration::from_millis(10),
                timeout: Duration::from_secs(10),
                ..ProbeSpec::default()
            });
        })
        .start()
        .await;
    let address = router.address;
    let mut first = tokio::task::JoinSet::new();
    first.spawn(async move { send(address, chat()).await.status });
    eventually("the one connection is in use", || {
        busy.received()
            .iter()
            .any(|request| request.uri.path() != "/health" && request.uri.path() != "/metrics")
    })
    .await;
    assert_eq!(
        send(address, chat()).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    let passed = || router.metric(r#"conductor_worker_probes_total{worker="a",result="passed"}"#);
    let reported = || router.metric(r#"conductor_worker_scrapes_total{worker="a",result="reported"}"#);
    let (had_passed, had_reported) = (passed(), reported());
    eventually("it is still probed", || {
        passed() >= had_passed + 2.0 && reported() >= had_reported + 2.0
    })
    .await;
    assert_eq!(router.metric(r#"conductor_worker_ejected{worker="a"}"#), 0.0);
    let failed = r#"conductor_worker_probes_total{worker="a",result="unreachable"}"#;
    assert_eq!(router.metric(failed), 0.0);
}

#[tokio::test]
async fn an_answer_that_is_relayed_for_want_of_budget_is_untouched() {
    let script = |_: Received| async {
        let mut answer = json(503, "mine");
        answer
            .headers_mut()
            .insert("x-own", http::HeaderValue::from_static("kept"));
        answer
    };
    let (a, b) = (Worker::start(script).await, Worker::start(script).await);
    let router = router()
        .worker("a", &a.url())
        .worker("b", &b.url())
        .with(|builder| {
            builder.retries.share = 0.0;
            builder.retries.per_second = 0.0;
        })
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("x-own"), Some("kept"));
    assert_eq!(answer.text().await, "mine");
    assert_eq!((a.received().len(), b.received().len()), (1, 0));
    assert_eq!(
        router.metric(r#"conductor_retries_total{pool="main",kind="over-budget"}"#),
        1.0
    );
}

#[tokio::test]
async fn the_response_of_a_worker_outlives_one_that_is_not_there() {
    let a = Worker::start(|_| async { json(503, "mine") }).await;
    let router = router()
        .worker("a", &a.url())
        .worker("b", &Worker::unreachable())
        .start()
        .await;
    let answer = send(router.address, chat()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.text().await, "mine");
    assert_eq!(
        router.metric(r#"conductor_worker_attempts_total{worker="b"}"#),
        1.0
    );
}
