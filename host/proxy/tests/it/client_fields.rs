//! Tests of the fields and headers that clients set: rights to set them, salts of their tenants, and what policies
//! read.

use std::sync::{Arc, Mutex};

use http::StatusCode;
use proxy::{AdmissionSpec, ClientSpec, EngineFields};

use crate::client::{chat, post, send};
use crate::clients::{client, of, over, with};
use crate::policy::{Scripted, route};
use crate::router::router;
use crate::worker::{Worker, answered_by_hand};

#[tokio::test]
async fn fields_that_take_from_other_clients_need_the_right_to_set_them() {
    let worker = Worker::named("a").await;
    let trusted = ClientSpec {
        may_set: EngineFields {
            priority: true,
            rank: true,
        },
        ..client("y")
    };
    let limited = ClientSpec {
        models: vec!["m".to_owned(), "own-*".to_owned()],
        ..client("x")
    };
    let router = over(&worker, vec![limited, trusted]).await;
    let body = |field: &str| format!("{{\"model\":\"m\",\"prompt\":\"hi\"{field}}}");
    let check = async |name: &str, field: &str, rank: Option<&str>, status: StatusCode| {
        let mut request = of(name, post("/v1/completions", body(field)));
        if let Some(rank) = rank {
            request = with(request, &[("x-data-parallel-rank", rank)]);
        }
        let answer = send(router.address, request).await;
        assert_eq!(answer.status, status, "{name} {field} {rank:?}");
        answer.text().await
    };
    let refused = [
        (",\"priority\":-1", None),
        (",\"priority\":1e3", None),
        (",\"priority\":\"-5\"", None),
        (",\"routed_dp_rank\":0", None),
        (",\"data_parallel_rank\":0", None),
        ("", Some("0")),
    ];
    for (field, rank) in refused {
        let text = check("x", field, rank, StatusCode::FORBIDDEN).await;
        assert!(text.contains("\"field_not_allowed\""), "{text}");
        check("y", field, rank, StatusCode::OK).await;
    }
    for adapter in ["\"theirs\"", "[\"own-1\",\"theirs\"]", "7"] {
        let field = format!(",\"lora_path\":{adapter}");
        check("x", &field, None, StatusCode::NOT_FOUND).await;
    }
    for field in [
        "",
        ",\"priority\":0",
        ",\"priority\":null",
        ",\"lora_path\":[\"own-1\",null]",
    ] {
        check("x", field, None, StatusCode::OK).await;
    }
    let count = "conductor_client_refusals_total{client=\"x\",reason=\"field\"}";
    assert_eq!(router.metric(count), 6.0);
    // Without configured clients, no permissions apply.
    let open = over(&worker, vec![]).await;
    let answer = send(open.address, post("/v1/completions", body(",\"priority\":-1"))).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_connection_header_takes_no_term_from_what_a_front_set() {
    let (worker, _answers) = answered_by_hand().await;
    let router = router().worker("a", &worker.url()).with(|with| {
        with.admission = Some(AdmissionSpec {
            timeout_header: Some("x-request-timeout".to_owned()),
            ..AdmissionSpec::default()
        });
    });
    let router = router.start().await;
    let request = with(
        chat(),
        &[
            ("connection", "keep-alive, x-request-timeout"),
            ("x-request-timeout", "20ms"),
        ],
    );
    let text = send(router.address, request).await.text().await;
    assert!(text.contains("\"request_timeout\""), "{text}");
}

#[tokio::test]
async fn tenants_of_an_isolating_pool_share_no_salt() {
    let worker = Worker::named("a").await;
    let router = router().worker("a", &worker.url()).with(|with| {
        with.isolate_prefixes = true;
        with.clients = vec![client("x"), client("y")];
    });
    let router = router.start().await;
    let mut salts = Vec::new();
    let first = "{\"model\":\"m\",\"prompt\":\"hi\"}".to_owned();
    for name in ["x", "x", "y"] {
        let answer = send(router.address, of(name, post("/v1/completions", first.clone()))).await;
        assert_eq!(answer.status, StatusCode::OK);
        salts.push(last_salt(&worker));
    }
    assert_eq!(salts[0], salts[1]);
    assert_ne!(salts[0], salts[2]);
    let forged = format!(
        "{{\"model\":\"m\",\"prompt\":\"hi\",\"cache_salt\":\"{}\"}}",
        salts[0]
    );
    let answer = send(router.address, of("y", post("/v1/completions", forged))).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(!salts.contains(&last_salt(&worker)));
}

#[tokio::test]
async fn a_salt_of_the_clients_own_stays_as_it_is_where_tenants_are_not_kept_apart() {
    let worker = Worker::named("a").await;
    let router = over(&worker, vec![client("x")]).await;
    let body = r#"{"model":"m","cache_salt":"a\"b\\","prompt":"hi"} "#;
    let answer = send(router.address, of("x", post("/v1/completions", body))).await;
    assert_eq!(answer.status, StatusCode::OK);
    let received = worker.received();
    assert_eq!(received.last().unwrap().body, body);
}

/// Returns `cache_salt` of the last request, as an engine parses it.
fn last_salt(worker: &Worker) -> String {
    let received = worker.received();
    let inference = received
        .iter()
        .rfind(|request| request.uri.path() == "/v1/completions");
    let body: serde_json::Value = serde_json::from_slice(&inference.unwrap().body).unwrap();
    body["cache_salt"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_policy_reads_the_headers_that_the_file_lists_and_no_other() {
    let worker = Worker::named("a").await;
    let read = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&read);
    let policy = Scripted::new(move |input| {
        let names = [
            "X-Shown",
            "x-hidden",
            "authorization",
            "x-api-key",
            "x-vault-token",
        ];
        *seen.lock().unwrap() = names.map(|name| input.queries.header(name)).into();
        Ok(route(0))
    });
    let router = router().worker("a", &worker.url()).policy(policy).start().await;
    let headers = [
        ("x-shown", "1"),
        ("x-hidden", "2"),
        ("authorization", "Bearer 3"),
        ("x-api-key", "4"),
        ("x-vault-token", "5"),
    ];
    send(router.address, with(chat(), &headers)).await.text().await;
    assert_eq!(
        *read.lock().unwrap(),
        [Some("1".to_owned()), None, None, None, None]
    );
}
