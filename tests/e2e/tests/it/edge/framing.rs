//! Heads and bodies that are too much, or that can be read in two ways (RFC 9110, RFC 9112).

use harness::{TestRouter, eventually, route_all};
use http::StatusCode;

use super::capture::Capture;
use super::raw::{Raw, chat};
use super::{metric, turned};
use crate::realtime::unruly::{raw_toml, raw_worker};
use crate::{fast_fleet, router_over};

async fn router(server: &str, worker: &Capture) -> TestRouter {
    let toml = format!("{server}\n{}{}", worker.toml(), route_all("round-robin"));
    TestRouter::start(&toml).await.unwrap()
}

/// Returns a request head with these lines, of a body of two bytes.
fn post(lines: &str) -> String {
    format!("POST /v1/completions HTTP/1.1\r\n{lines}\r\n\r\n")
}

#[tokio::test]
async fn oversized_requests_are_refused_with_an_error_code_and_counted() {
    let worker = Capture::start().await;
    let limits = "header-limit = \"1KiB\"\nheader-count = 8\nurl-limit = \"64B\"\njson-depth = 8\n";
    let router = router(limits, &worker).await;
    let check = async |request: String, status: u16, code: &str, reason: &str| {
        let before = turned(&router, reason).await;
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        client.send(&request).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, &*answer.code()), (status, code), "{answer:?}");
        assert_eq!(turned(&router, reason).await, before + 1.0, "{reason}");
    };
    let long = "v".repeat(1_100);
    check(
        post(&format!("host: r\r\ncontent-length: 0\r\nx-long: {long}")),
        431,
        "headers_too_large",
        "head-too-large",
    )
    .await;
    let many = "x: 1\r\n".repeat(8);
    check(
        post(&format!("{many}content-length: 0\r\nhost: r")),
        431,
        "headers_too_large",
        "head-too-large",
    )
    .await;
    let target = "a".repeat(70);
    check(
        format!("GET /{target} HTTP/1.1\r\nhost: r\r\n\r\n"),
        414,
        "url_too_long",
        "url-too-long",
    )
    .await;
    // Skipped fields count as well.
    let deep = format!("{{\"unread\":{}1{}}}", "[".repeat(9), "]".repeat(9));
    let with_body = |path: &str| {
        let length = deep.len();
        format!("POST {path} HTTP/1.1\r\nhost: r\r\ncontent-length: {length}\r\n\r\n{deep}")
    };
    check(
        with_body("/v1/completions"),
        400,
        "body_too_deep",
        "json-too-deep",
    )
    .await;
    // Beyond the connection's buffer nothing is read to identify the client.
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    let flood = "x".repeat(300 << 10);
    // The router may close before all is sent.
    let _ = client.send(post(&format!("host: r\r\nx: {flood}"))).await;
    assert!(client.answer().await.is_ok_and(|answer| answer.status == 431) || client.is_closed().await);
    assert!(worker.received().is_empty(), "{:?}", worker.received());
}

#[tokio::test]
async fn an_ambiguously_framed_request_reaches_no_worker() {
    let worker = Capture::start().await;
    let router = router("", &worker).await;
    let check = async |request: &str, status: u16| {
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        // Were it read otherwise, a second request would follow.
        let _ = client.send(format!("{request}{}", chat())).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, status, "{request}\n{answer:?}");
        if status == 400 && answer.body.is_empty() {
            assert!(client.is_closed().await, "{request}");
        }
    };
    let framed = [
        "content-length: 2\r\ncontent-length: 3",
        "content-length: 2, 3",
        "content-length: +2",
        "content-length: 2x",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "content-length : 2",
        "content-length: 2\r\ncontent-length: 2",
        "content-length: 2\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 2",
        "x: a\ncontent-length: 2",
        "x: a\r\n folded: b\r\ncontent-length: 2",
        "x: a\rb\r\ncontent-length: 2",
        "x: a\0b\r\ncontent-length: 2",
        "x y: a\r\ncontent-length: 2",
    ];
    for lines in framed {
        check(&format!("{}{{}}", post(&format!("host: r\r\n{lines}"))), 400).await;
    }
    for coding in [
        "gzip, chunked",
        "identity\r\ntransfer-encoding: chunked",
        "chunked, chunked",
    ] {
        let head = post(&format!("host: r\r\ntransfer-encoding: {coding}"));
        check(&format!("{head}2\r\n{{}}\r\n0\r\n\r\n"), 501).await;
    }
    check(&format!("{}{{}}", post("content-length: 2")), 400).await;
    check(
        &format!("{}{{}}", post("host: a\r\nhost: b\r\ncontent-length: 2")),
        400,
    )
    .await;
    check(&format!("{}{{}}", post("host: a, b\r\ncontent-length: 2")), 400).await;
    let chunked = post("host: r\r\ntransfer-encoding: chunked");
    for body in ["2\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n", "2;x\n{}\r\n0\r\n\r\n"] {
        check(&format!("{chunked}{body}"), 400).await;
    }
    let old =
        "POST /v1/completions HTTP/1.0\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    check(old, 400).await;
    let overflow = post("host: r\r\ntransfer-encoding: chunked");
    check(&format!("{overflow}FFFFFFFFFFFFFFFFF\r\n"), 400).await;
    assert!(
        worker
            .received()
            .iter()
            .all(|request| !request.contains("/v1/completions ")),
        "{:?}",
        worker.received()
    );
    assert!(turned(&router, "malformed").await > 0.0);
}

#[tokio::test]
async fn a_trailer_with_a_bare_lf_hides_no_second_request() {
    let worker = Capture::start().await;
    let router = router("", &worker).await;
    let chunked = post("host: r\r\ntransfer-encoding: chunked");
    for trailers in ["\n", "x: y\n\n", "x: y\r\n\n", "x: y\n\r\n"] {
        let before = turned(&router, "malformed").await;
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        let _ = client
            .send(format!("{chunked}2\r\n{{}}\r\n0\r\n{trailers}{}", chat()))
            .await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 400, "{trailers:?}: {answer:?}");
        assert!(client.is_closed().await, "{trailers:?}");
        eventually("it is counted", || async {
            turned(&router, "malformed").await == before + 1.0
        })
        .await;
    }
    assert!(worker.received().is_empty(), "{:?}", worker.received());
}

#[tokio::test]
async fn an_answer_framed_in_two_ways_is_never_relayed() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\
                  transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let (port, _serving) = raw_worker(answer).await;
    let toml = format!("{}{}", raw_toml(port, "[\"mock\"]"), route_all("round-robin"));
    let router = TestRouter::start(&toml).await.unwrap();
    let request = crate::chat("hi", false);
    let answer = router
        .client
        .post("/v1/chat/completions", &request)
        .await
        .unwrap();
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["error"]["code"], "worker_bad_answer");
}

#[tokio::test]
async fn hop_by_hop_headers_do_not_reach_the_worker() {
    let worker = Capture::start().await;
    let router = router("", &worker).await;
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    let lines = "host: r\r\nconnection: keep-alive, x-private, upgrade, http2-settings\r\nx-private: 1\r\n\
                 http2-settings: AAA\r\nupgrade: h2c\r\nte: trailers\r\ntrailer: x-sum\r\nkeep-alive: timeout=5\r\n\
                 proxy-connection: keep-alive\r\nproxy-authorization: Basic x\r\nvia: 1.0 fred\r\nx-kept: yes\r\n\
                 content-length: 2";
    client.send(format!("{}{{}}", post(lines))).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    let received = worker.received().remove(0);
    for gone in [
        "x-private",
        "connection:",
        "upgrade",
        "http2-settings",
        "\r\nte:",
        "trailer",
        "keep-alive",
        "proxy-",
    ] {
        assert!(!received.contains(gone), "{gone}: {received}");
    }
    assert!(received.contains("x-kept: yes"), "{received}");
    assert!(received.contains("via: 1.0 fred\r\n"), "{received}");
    assert!(received.contains("via: 1.1 conductor-"), "{received}");
}

#[tokio::test]
async fn only_paths_that_are_known_lead_anywhere() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let check = async |line: &str, status: u16| {
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        client
            .send(format!("{line} HTTP/1.1\r\nhost: r\r\ncontent-length: 0\r\n\r\n"))
            .await
            .unwrap();
        assert_eq!(client.answer().await.unwrap().status, status, "{line}");
    };
    check("GET http://elsewhere.test/health", 200).await;
    check("GET /v1/../admin/config", 404).await;
    check("GET /v1/models/../../admin/config", 404).await;
    check("GET /%2e%2e/admin/config", 404).await;
    check("GET //admin/config", 404).await;
    check("GET /admin/config", 404).await;
    check("OPTIONS *", 404).await;
    check("CONNECT elsewhere.test:443", 400).await;
    check("POST /v1/completions/../../tokenize", 404).await;
}

#[tokio::test]
async fn a_router_that_is_its_own_worker_reports_it_instead_of_querying_itself_for_ever() {
    let worker = Capture::start().await;
    let router = router("", &worker).await;
    let itself = format!(
        "[pools.chat]\ntokenize = \"off\"\n[[pools.chat.workers]]\nname = \"self\"\nurl = \"{}\"\nkv-events = \"off\"\n",
        router.client.base()
    );
    router
        .save_config(&format!("{itself}{}", route_all("round-robin")))
        .unwrap();
    router
        .admin_shows("/admin/config", "the router is its own worker", |page| {
            page["generation"].as_u64() > Some(1)
        })
        .await;
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    client.send(chat()).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, &*answer.code()),
        (508, "loop_detected"),
        "{answer:?}"
    );
    let attempts = metric(&router, "conductor_worker_attempts_total{worker=\"self\"").await;
    // The router reads its worker's list of models too, which comes back to it as well.
    assert!(attempts >= 1.0 && turned(&router, "loop").await >= attempts);
}

#[tokio::test]
async fn pages_of_other_origins_may_send_requests_where_they_are_listed() {
    let worker = Capture::start().await;
    let cors = "[server.cors]\norigins = [\"https://chat.example\"]\nmax-age = \"1m\"\n";
    let router = router(cors, &worker).await;
    let check = async |request: String, status: u16, has: &[&str], has_not: &[&str]| {
        let mut client = Raw::connect(router.client.base()).await.unwrap();
        client.send(&request).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        for header in has {
            assert!(
                answer.head.contains(&format!("\r\n{header}")),
                "{header}: {answer:?}"
            );
        }
        for header in has_not {
            assert!(!answer.head.contains(header), "{header}: {answer:?}");
        }
    };
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: r\r\norigin: {origin}\r\naccess-control-request-method: POST\r\n\r\n"
        )
    };
    let allowed = "access-control-allow-origin: https://chat.example";
    check(
        preflight("https://chat.example"),
        204,
        &[
            allowed,
            "access-control-allow-methods: get, post",
            "access-control-allow-headers: authorization, content-type",
            "access-control-max-age: 60",
            "vary: origin",
        ],
        &[],
    )
    .await;
    let none = &["access-control-allow-origin"];
    check(preflight("https://evil.example"), 204, &["vary: origin"], none).await;
    let preflight = |origin: &str| chat().replace("host: r", &format!("host: r\r\norigin: {origin}"));
    check(
        preflight("https://chat.example"),
        200,
        &[allowed, "access-control-expose-headers: x-request-id"],
        &[],
    )
    .await;
    check(preflight("https://evil.example"), 200, &[], none).await;
}

#[tokio::test]
async fn without_a_word_of_the_configuration_no_origin_is_sent_anything() {
    let fleet = fast_fleet(1).await;
    let router = router_over(&fleet, "round-robin").await;
    let mut client = Raw::connect(router.client.base()).await.unwrap();
    let preflight = "GET /health HTTP/1.1\r\nhost: r\r\norigin: https://chat.example\r\n\r\n";
    client.send(preflight).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert!(!answer.head.contains("access-control"), "{answer:?}");
}
