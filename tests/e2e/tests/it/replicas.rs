//! Several routers that share their loads over a real `nats-server`, where one is installed.

use bytes::Bytes;
use harness::{Fleet, Stream, TestRouter, route_all};
use http::Method;
use nats_server::NatsSite;
use serde_json::{Value, json};

use crate::fast_fleet;

/// Largest `dead-after`: no router counts as dead in tests of other things.
const PATIENT: &str = "dead-after = \"60s\"\n";

/// Starts a router of a fleet, with more keys of `[replicas]`.
async fn router(site: &NatsSite, more: &str, fleet: &str, name: &str, engines: &Fleet) -> TestRouter {
    let toml = format!(
        "[replicas]\nservers = [\"{}\"]\nfleet = \"{fleet}\"\nname = \"{name}\"\n{more}{}{}",
        site.url(),
        engines.workers_toml(),
        route_all("least-request")
    );
    TestRouter::start(&toml).await.unwrap()
}

/// Starts engines whose streams go on until they are dropped.
async fn engines() -> Fleet {
    Fleet::start(2, |_, config| config.time_scale = 0.1)
        .await
        .unwrap()
}

async fn others(router: &TestRouter, states: &[&str]) -> Value {
    let what = format!("the other routers are {states:?}");
    router
        .admin_shows("/admin/replicas", &what, |page| {
            let others = page["others"].as_array().into_iter().flatten();
            others
                .map(|other| other["state"].as_str())
                .eq(states.iter().map(|state| Some(*state)))
        })
        .await
}

/// Waits until a router counts so many requests at its workers, of all routers.
async fn requests(router: &TestRouter, wanted: u64) {
    let what = format!("the fleet has {wanted} requests");
    let sum = |page: &Value| -> u64 {
        let workers = page["pools"][0]["workers"].as_array().into_iter().flatten();
        workers
            .filter_map(|worker| worker["load"]["requests"].as_u64())
            .sum()
    };
    router
        .admin_shows("/status", &what, |page| sum(page) == wanted)
        .await;
}

/// SHA-256 of `test`, the key of the only client.
const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Starts a router of a fleet with one client, and with further keys of its pool.
async fn limited_router(site: &NatsSite, limits: &str, pool: &str, engines: &Fleet) -> TestRouter {
    let nats = site.url();
    let toml = format!(
        "[replicas]\nservers = [\"{nats}\"]\n\
         [clients.x]\nkey-sha256 = \"{HASH_OF_TEST}\"\n{limits}\n{pool}\n{}{}",
        engines.workers_toml(),
        route_all("least-request")
    );
    TestRouter::start(&toml).await.unwrap()
}

/// Starts two such routers, of which the second one knows the first.
async fn two_limited_routers(site: &NatsSite, limits: &str, pool: &str, engines: &Fleet) -> [TestRouter; 2] {
    let one = limited_router(site, limits, pool, engines).await;
    let two = limited_router(site, limits, pool, engines).await;
    others(&two, &["ready"]).await;
    [one, two]
}

/// Opens a request with the client's key.
async fn open_with_key(router: &TestRouter, body: &Value) -> Stream {
    let headers = [
        ("authorization", "Bearer test"),
        ("content-type", "application/json"),
    ];
    let body = Bytes::from(body.to_string());
    let sent = router
        .client
        .stream(Method::POST, "/v1/completions", &headers, body)
        .await;
    sent.unwrap()
}

/// Sends short requests with the client's key until one has that status.
async fn sends_until(router: &TestRouter, status: u16) {
    let body = json!({ "model": "mock", "prompt": "hi", "max_tokens": 1 });
    let mut others = 0;
    while open_with_key(router, &body).await.whole().await.unwrap().status != status {
        others += 1;
        assert!(others < 1_000, "no answer had the status {status}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn concurrent_requests_of_a_client_count_at_all_routers() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else {
        return;
    };
    let engines = engines().await;
    let limits = "concurrent = 2";
    let [one, two] = two_limited_routers(&site, limits, "", &engines).await;
    let held = [
        open_with_key(&one, &stream()).await,
        open_with_key(&one, &stream()).await,
    ];
    assert!(held.iter().all(|stream| stream.status == 200));
    sends_until(&two, 429).await;
    drop(held);
    sends_until(&two, 200).await;
}

#[tokio::test]
async fn tokens_that_a_client_used_at_one_router_are_used_at_the_other() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else {
        return;
    };
    let engines = fast_fleet(1).await;
    let limits = "tokens-per-minute = 5_000";
    let [one, two] = two_limited_routers(&site, limits, "", &engines).await;
    // More than two minutes' worth: the excess is paid off by waiting.
    let large = json!({ "model": "mock", "prompt": "word ".repeat(9_000), "max_tokens": 1 });
    let answer = open_with_key(&one, &large).await.whole().await.unwrap();
    assert_eq!(answer.status, 200);
    // Its own use alone would allow thousands.
    sends_until(&two, 429).await;
    let third = limited_router(&site, limits, "", &engines).await;
    others(&third, &["ready", "ready"]).await;
    sends_until(&third, 429).await;
}

#[tokio::test]
async fn a_budget_holds_over_all_routers_and_is_free_again_when_one_ends() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else {
        return;
    };
    let engines = engines().await;
    let pool = "[pools.chat]\nqueue-limit = 0\n[pools.chat.admission]\nrequests = 2";
    let [one, two] = two_limited_routers(&site, "", pool, &engines).await;
    let held = [
        open_with_key(&one, &stream()).await,
        open_with_key(&one, &stream()).await,
    ];
    assert!(held.iter().all(|stream| stream.status == 200));
    sends_until(&two, 429).await;
    drop(held);
    one.stop().await.unwrap();
    sends_until(&two, 200).await;
}

fn stream() -> Value {
    json!({ "model": "mock", "prompt": "hello", "max_tokens": 2_000, "ignore_eos": true, "stream": true })
}

#[tokio::test]
async fn requests_of_one_router_are_known_to_the_other_and_leave_with_it() {
    let site = NatsSite::new().unwrap();
    let Some(_nats) = site.start() else {
        return;
    };
    let engines = engines().await;
    let one = router(&site, PATIENT, "main", "one", &engines).await;
    let two = router(&site, PATIENT, "main", "two", &engines).await;
    let alone = router(&site, PATIENT, "other", "alone", &engines).await;
    let page = others(&two, &["ready"]).await;
    assert_eq!(page["others"][0]["name"], "one");
    assert_eq!(page["others"][0]["same-config"], true);
    assert_eq!(page["others"][0]["same-fleet"], true);

    let first = one.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&two, 1).await;
    let second = two.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&one, 2).await;
    assert_ne!(
        first.header("x-conductor-worker"),
        second.header("x-conductor-worker"),
        "the second router takes the worker that the first left idle"
    );
    assert_eq!(
        two.leases("w").await.unwrap(),
        1.0,
        "metrics have the own requests"
    );
    assert_eq!(alone.admin("/admin/replicas").await.unwrap()["others"], json!([]));
    requests(&alone, 0).await;

    drop(first);
    requests(&two, 1).await;
    drop(second);
    requests(&one, 0).await;
    let third = one.client.open("/v1/completions", &stream()).await.unwrap();
    requests(&two, 1).await;
    drop(third);
    one.stop().await.unwrap();
    others(&two, &[]).await;
    requests(&two, 0).await;
}

#[tokio::test]
async fn routers_without_a_server_serve_alone_and_share_once_there_is_one() {
    let site = NatsSite::new().unwrap();
    let engines = fast_fleet(1).await;
    let one = router(&site, "", "main", "one", &engines).await;
    let two = router(&site, "", "main", "two", &engines).await;
    let body = json!({ "model": "mock", "prompt": "hello", "max_tokens": 2 });
    let served = async |router: &TestRouter| {
        let answer = router.client.post("/v1/completions", &body).await.unwrap();
        assert_eq!(answer.status, 200);
    };
    served(&one).await;
    let page = one.admin("/admin/replicas").await.unwrap();
    assert_eq!(
        (&page["sharing"], &page["connected"]),
        (&json!(true), &json!(false))
    );
    crate::filled(&one).await;
    assert_eq!(one.client.get("/readyz").await.unwrap().status, 200);
    let Some(nats) = site.start() else {
        return;
    };
    others(&one, &["ready"]).await;
    drop(nats);
    others(&one, &["silent"]).await;
    served(&one).await;
    served(&two).await;
    let _nats = site.start();
    others(&one, &["ready"]).await;
}
