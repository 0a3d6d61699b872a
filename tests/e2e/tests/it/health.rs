//! Workers that are killed, hung, slowed, flapping or full of errors: what clients see, and how workers come back.

use harness::{
    DEADLINE, Fleet, TestRouter, eventually, eventually_ok, route_all, worker_toml, workers_checked,
};
use http::StatusCode;
use mock_engine::{RequestFault, Times};
use serde_json::Value;

use crate::{chat, fast_fleet, router_with};

/// Starts a router over the fleet, whose pool has these tables and keys.
async fn start(fleet: &Fleet, pool: &str) -> TestRouter {
    router_with(pool, fleet, "round-robin").await
}

async fn send_request(router: &TestRouter) -> harness::Answer {
    let body = chat("hi", false);
    router.client.post("/v1/chat/completions", &body).await.unwrap()
}

async fn health(router: &TestRouter, worker: usize) -> Value {
    let page = router.client.get("/status").await.unwrap().json().unwrap();
    page["pools"][0]["workers"][worker]["health"].clone()
}

async fn is(router: &TestRouter, worker: usize, expected: &str) {
    eventually(&format!("worker {worker} is {expected}"), || async {
        health(router, worker).await == expected
    })
    .await;
}

async fn metric(router: &TestRouter, series: &str) -> f64 {
    router.metric(series).await.unwrap().unwrap_or(f64::NAN)
}

fn failing(status: StatusCode, retry_after: Option<u32>) -> RequestFault {
    RequestFault::Status { status, retry_after }
}

#[tokio::test]
async fn a_worker_that_fails_its_probes_gets_no_requests_until_they_pass() {
    let fleet = fast_fleet(2).await;
    let router = start(
        &fleet,
        "[pools.chat.health]\ninterval = \"10ms\"\ntimeout = \"5s\"\nslow-start = \"0s\"",
    )
    .await;
    let faults = fleet.engines[1].faults();
    faults.fail_health(Some(StatusCode::SERVICE_UNAVAILABLE));
    is(&router, 1, "unhealthy").await;
    for _ in 0..6 {
        assert_eq!(send_request(&router).await.header("x-conductor-worker"), "w0");
    }
    let ejected = r#"conductor_worker_ejections_total{worker="w1",cause="probe"}"#;
    assert_eq!(metric(&router, ejected).await, 1.0);
    faults.clear();
    is(&router, 1, "ok").await;
    eventually("it gets requests again", || async {
        send_request(&router).await.header("x-conductor-worker") == "w1"
    })
    .await;
}

#[tokio::test]
async fn a_server_without_a_health_page_is_taken_to_be_well() {
    let fleet = fast_fleet(1).await;
    fleet.engines[0].faults().fail_health(Some(StatusCode::NOT_FOUND));
    let router = start(&fleet, "[pools.chat.health]\ninterval = \"10ms\"").await;
    eventually("it was queried several times", || async {
        metric(
            &router,
            r#"conductor_worker_probes_total{worker="w0",result="no-page"}"#,
        )
        .await
            > 3.0
    })
    .await;
    assert_eq!(health(&router, 0).await, "ok");
}

#[tokio::test]
async fn a_worker_that_never_answers_costs_one_request_and_slows_no_other() {
    let fleet = fast_fleet(3).await;
    let toml = |first_byte: &str, workers: &[usize]| {
        let workers = workers.iter();
        let workers = workers.map(|number| worker_toml(*number, &fleet.engines[*number]));
        format!(
            "[pools.chat.timeouts]\nfirst-byte = \"{first_byte}\"\n\
             [pools.chat.health]\nbase-ejection-time = \"1h\"\nmax-ejection-time = \"1h\"\n{}{}",
            workers.collect::<String>(),
            route_all("round-robin")
        )
    };
    // Its time is short, and that of the requests after it is long: none of those is too late on a slow machine.
    let router = TestRouter::start(&toml("100ms", &[1])).await.unwrap();
    fleet.engines[1]
        .faults()
        .on_requests(RequestFault::Hang, Times::UntilCleared);
    assert_eq!(send_request(&router).await.status, StatusCode::GATEWAY_TIMEOUT);
    router.save_config(&toml("1h", &[0, 1, 2])).unwrap();
    router
        .admin_shows("/admin/config", "the other workers are there", |page| {
            page["generation"] == 2
        })
        .await;
    workers_checked(&router.admin).await;
    for _ in 0..29 {
        let answer = tokio::time::timeout(DEADLINE, send_request(&router)).await;
        assert_eq!(answer.expect("it rests").status, StatusCode::OK);
    }
    assert_eq!(health(&router, 1).await, "ejected");
}

#[tokio::test]
async fn a_burst_of_server_errors_takes_a_worker_out_and_not_all_of_them() {
    let fleet = fast_fleet(2).await;
    let router = start(
        &fleet,
        "[pools.chat.health]\nserver-errors = 3\nbase-ejection-time = \"1h\"\nmax-ejection-time = \"1h\"",
    )
    .await;
    for engine in &fleet.engines {
        let error = failing(StatusCode::INTERNAL_SERVER_ERROR, None);
        engine.faults().on_requests(error, Times::UntilCleared);
    }
    for _ in 0..12 {
        let answer = send_request(&router).await;
        // No worker answers better, so the client gets a worker's answer.
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let both = [health(&router, 0).await, health(&router, 1).await];
    let out = both.iter().filter(|health| **health == "ejected").count();
    assert_eq!(out, 1, "half of them at most: {both:?}");
}

#[tokio::test]
async fn an_overloaded_worker_is_passed_over_for_its_retry_after() {
    let fleet = fast_fleet(2).await;
    let router = start(&fleet, "").await;
    let busy = failing(StatusCode::TOO_MANY_REQUESTS, Some(3_600));
    fleet.engines[1].faults().on_requests(busy, Times::Next(1));
    for _ in 0..8 {
        let answer = send_request(&router).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert_eq!(health(&router, 1).await, "busy");
    assert_eq!(fleet.engines[1].stats().faulted, 1);
    let paid = metric(&router, r#"conductor_retries_total{pool="chat",kind="paid"}"#).await;
    assert_eq!(paid, 1.0);
}

#[tokio::test]
async fn when_every_worker_refuses_the_client_gets_the_last_ones_answer() {
    let fleet = fast_fleet(2).await;
    let router = start(&fleet, "").await;
    for engine in &fleet.engines {
        let busy = failing(StatusCode::SERVICE_UNAVAILABLE, Some(7));
        engine.faults().on_requests(busy, Times::UntilCleared);
    }
    let answer = send_request(&router).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), "7");
    let text = answer.text();
    assert!(!text.contains("no_worker_reachable"), "the worker's own: {text}");
    let faulted: u64 = fleet.engines.iter().map(|engine| engine.stats().faulted).sum();
    assert_eq!(faulted, 2, "each was tried once");
}

#[tokio::test]
async fn the_budget_bounds_a_storm_of_retries() {
    let fleet = fast_fleet(3).await;
    let router = start(
        &fleet,
        "[pools.chat.retries]\nbudget = 0.1\nmin-per-second = 0\nbackoff = \"0s\"\n\
         [pools.chat.health]\nfailure-min-requests = 0",
    )
    .await;
    for engine in &fleet.engines {
        let error = failing(StatusCode::BAD_GATEWAY, None);
        engine.faults().on_requests(error, Times::UntilCleared);
    }
    for _ in 0..100 {
        assert_eq!(send_request(&router).await.status, StatusCode::BAD_GATEWAY);
    }
    let tries: u64 = fleet.engines.iter().map(|engine| engine.stats().faulted).sum();
    // A tenth in ten seconds, and those of the time before them.
    assert!((105..=125).contains(&tries), "{tries}");
    let denied = r#"conductor_retries_total{pool="chat",kind="over-budget"}"#;
    assert!(metric(&router, denied).await >= 80.0);
}

#[tokio::test]
async fn a_flapping_worker_costs_no_request() {
    let fleet = fast_fleet(3).await;
    let router = start(
        &fleet,
        "[pools.chat.health]\nbase-ejection-time = \"10ms\"\nmax-ejection-time = \"40ms\"\nslow-start = \"20ms\"\ninterval = \"10ms\"",
    )
    .await;
    for _ in 0..10 {
        fleet.engines[2].faults().refuse_connections().await.unwrap();
        for _ in 0..4 {
            assert_eq!(send_request(&router).await.status, StatusCode::OK);
        }
        fleet.engines[2].faults().accept_connections().await.unwrap();
        for _ in 0..4 {
            assert_eq!(send_request(&router).await.status, StatusCode::OK);
        }
    }
    is(&router, 2, "ok").await;
}

#[tokio::test]
async fn a_worker_that_came_back_gets_a_rising_share() {
    let fleet = fast_fleet(2).await;
    let router = start(
        &fleet,
        "[pools.chat.health]\nbase-ejection-time = \"1ms\"\nmax-ejection-time = \"1ms\"\nslow-start = \"1h\"\npath = \"off\"",
    )
    .await;
    fleet.engines[1].faults().refuse_connections().await.unwrap();
    eventually("it failed", || async {
        send_request(&router).await;
        metric(
            &router,
            r#"conductor_worker_ejections_total{worker="w1",cause="failures"}"#,
        )
        .await
            >= 1.0
    })
    .await;
    fleet.engines[1].faults().accept_connections().await.unwrap();
    eventually("it is on its way back", || async {
        send_request(&router).await;
        health(&router, 1).await == "returning"
    })
    .await;
    let mut offered = 0;
    for _ in 0..200 {
        let answer = send_request(&router).await;
        assert_eq!(answer.status, StatusCode::OK);
        offered += u32::from(answer.header("x-conductor-worker") == "w1");
    }
    // At first it is a candidate for a tenth of them.
    assert!((1..=40).contains(&offered), "{offered} of 200");
}

#[tokio::test]
async fn the_whole_time_of_a_request_ends_it_before_and_during_its_answer() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "[pools.chat.timeouts]\nrequest = \"300ms\"").await;
    fleet.engines[0].faults().hold_streams_after(1);
    let mut sent = 0.0;
    eventually_ok("an answer begins", || {
        sent += 1.0;
        async {
            let stream = router
                .client
                .open("/v1/chat/completions", &chat("hi", true))
                .await;
            let text = stream.unwrap().whole().await.unwrap().text();
            assert!(text.contains("\"code\":\"request_timeout\""), "{text}");
            // Where the router stalls, the time can be over before.
            if text.starts_with("data: ") {
                Ok(())
            } else {
                Err(text)
            }
        }
    })
    .await;
    fleet.engines[0]
        .faults()
        .on_requests(RequestFault::Hang, Times::UntilCleared);
    let answer = send_request(&router).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(answer.text().contains("request_timeout"), "{}", answer.text());
    let ended = r#"conductor_requests_total{pool="chat",outcome="request-timeout"}"#;
    assert_eq!(metric(&router, ended).await, sent + 1.0);
    eventually("nothing is left of them", || async {
        router.leases("w").await.unwrap() == 0.0
    })
    .await;
}

#[tokio::test]
async fn readiness_reports_whether_any_worker_is_in_service() {
    let fleet = fast_fleet(2).await;
    let router = start(
        &fleet,
        "[pools.chat.health]\ninterval = \"10ms\"\nslow-start = \"0s\"",
    )
    .await;
    let ready = async || {
        let answer = router.client.get("/readyz").await.unwrap();
        (answer.status, answer.json().unwrap())
    };
    fleet.engines[0]
        .faults()
        .fail_health(Some(StatusCode::INTERNAL_SERVER_ERROR));
    is(&router, 0, "unhealthy").await;
    let (status, page) = ready().await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let pool = &page["pools"]["chat"];
    assert_eq!((&pool["workers"], &pool["in_service"]), (&2.into(), &1.into()));
    let out = &pool["out_of_service"][0];
    assert_eq!(
        (&out["worker"], &out["health"]),
        (&"w0".into(), &"unhealthy".into())
    );
    let reason = out["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("`GET /health` got 500 Internal Server Error"),
        "{reason}"
    );
    fleet.engines[1]
        .faults()
        .fail_health(Some(StatusCode::INTERNAL_SERVER_ERROR));
    is(&router, 1, "unhealthy").await;
    let (status, page) = ready().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(page["reason"], "no worker of any pool is in service");
    assert_eq!(
        send_request(&router).await.status,
        StatusCode::OK,
        "then all are candidates"
    );
    for engine in &fleet.engines {
        engine.faults().clear();
    }
    eventually("it is ready again", || async {
        ready().await.0 == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn engines_report_their_own_load() {
    let fleet = fast_fleet(1).await;
    let router = start(&fleet, "[pools.chat.scrape]\ninterval = \"10ms\"").await;
    eventually("it has reported", || async {
        metric(
            &router,
            r#"conductor_worker_scrapes_total{worker="w0",result="reported"}"#,
        )
        .await
            >= 2.0
    })
    .await;
    let age = r#"conductor_worker_load_age_seconds{worker="w0"}"#;
    assert!(metric(&router, age).await.is_finite());
    let page = router.client.get("/status").await.unwrap().json().unwrap();
    let engine = &page["pools"][0]["workers"][0]["engine"];
    assert_eq!(engine["running"], 0.0, "{engine}");
    assert_eq!(engine["kv_tokens"], 65_536.0, "{engine}");
}

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_has_and_gets_nothing_new() {
    let fleet = fast_fleet(2).await;
    let toml = format!("{}{}", fleet.workers_toml(), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    for engine in &fleet.engines {
        engine.faults().hold_streams_after(1);
    }
    let mut streams = Vec::new();
    for _ in 0..2 {
        let body = chat("hi", true);
        let mut stream = router.client.open("/v1/chat/completions", &body).await.unwrap();
        assert!(stream.chunk().await.unwrap().is_some());
        streams.push(stream);
    }
    let draining = toml.replace("name = \"w1\"\n", "name = \"w1\"\ndrain = true\n");
    router.save_config(&draining).unwrap();
    is(&router, 1, "draining").await;
    for _ in 0..6 {
        assert_eq!(send_request(&router).await.header("x-conductor-worker"), "w0");
    }
    for engine in &fleet.engines {
        assert_eq!(engine.stats().held_streams, 1, "it has not finished");
        engine.faults().clear();
    }
    for stream in streams {
        let text = stream.whole().await.unwrap().text();
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    let all_draining = draining.replace("name = \"w0\"\n", "name = \"w0\"\ndrain = true\n");
    router.save_config(&all_draining).unwrap();
    is(&router, 0, "draining").await;
    assert_eq!(
        send_request(&router).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    router.save_config(&toml).unwrap();
    is(&router, 1, "ok").await;
}

#[tokio::test]
async fn the_router_becomes_ready_when_its_first_worker_is_reached_and_not_before() {
    let fleet = fast_fleet(1).await;
    let engine = &fleet.engines[0];
    engine.faults().refuse_connections().await.unwrap();
    let toml = format!(
        "[pools.chat.health]\ninterval = \"1h\"\n{}{}",
        fleet.workers_toml(),
        route_all("round-robin")
    );
    let router = TestRouter::start(&toml).await.unwrap();
    assert_eq!(health(&router, 0).await, "pending");
    crate::filled(&router).await;
    let answer = router.client.get("/readyz").await.unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let page = answer.json().unwrap();
    assert_eq!(page["reason"], "no worker of any pool is in service; pending: w0");
    let status = router.client.get("/status").await.unwrap().json().unwrap();
    let worker = &status["pools"][0]["workers"][0];
    let reason = worker["health_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("never reached; the last failure: "),
        "{reason}"
    );
    assert!(
        worker["next_try_s"].as_f64().unwrap() < 3_600.0,
        "soon, whatever the interval: {worker}"
    );
    engine.faults().accept_connections().await.unwrap();
    is(&router, 0, "ok").await;
    assert_eq!(router.client.get("/readyz").await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_worker_that_a_reload_adds_is_pending_until_it_is_reached() {
    let fleet = fast_fleet(2).await;
    fleet.engines[1].faults().refuse_connections().await.unwrap();
    let one = worker_toml(0, &fleet.engines[0]);
    let router = TestRouter::start(&format!("{one}{}", route_all("round-robin")))
        .await
        .unwrap();
    router
        .save_config(&format!("{}{}", fleet.workers_toml(), route_all("round-robin")))
        .unwrap();
    is(&router, 1, "pending").await;
    assert_eq!(health(&router, 0).await, "ok", "it keeps its state");
    for _ in 0..6 {
        assert_eq!(send_request(&router).await.header("x-conductor-worker"), "w0");
    }
    let attempts = r#"conductor_worker_attempts_total{worker="w1"}"#;
    assert_eq!(metric(&router, attempts).await, 0.0);
    fleet.engines[1].faults().accept_connections().await.unwrap();
    is(&router, 1, "ok").await;
}
