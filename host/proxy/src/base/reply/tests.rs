//! Tests of error responses, and of the page that lists their codes.

use std::collections::BTreeSet;

use std::time::Duration;

use routing::Rejection;

use super::refusal::MAX_ECHO;
use super::*;

#[track_caller]
fn check(refusal: &Refusal, status: u16, retry_after: Option<&str>, body: &str) {
    let response = refuse(refusal);
    assert_eq!(response.status(), status);
    let header = response
        .headers()
        .get(RETRY_AFTER)
        .map(|value| value.to_str().unwrap());
    assert_eq!(header, retry_after);
    assert_eq!(response.body(), body);
}

#[test]
fn a_refusal_has_the_shape_clients_know() {
    check(
        &Refusal::ModelNotFound { model: "x".into() },
        404,
        None,
        r#"{"error":{"message":"the model `x` does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#,
    );
    let rejection = Rejection {
        status: 429,
        retry_after_ms: 1_500,
        reason: "over quota".into(),
    };
    check(
        &Refusal::Rejected {
            rejection,
            policy: None,
        },
        429,
        Some("2"),
        r#"{"error":{"message":"over quota","type":"rate_limit_error","param":null,"code":"rejected_by_policy"}}"#,
    );
}

#[test]
fn a_refusal_has_the_shape_of_its_path() {
    let id = HeaderValue::from_static("req-7");
    let refuse = |path: &str, refusal: &Refusal| {
        let response = refuse_in(shape_of(path), Some(&id), refusal);
        (
            response.status().as_u16(),
            String::from_utf8(response.body().to_vec()).unwrap(),
        )
    };
    let wrong = Refusal::WrongKey;
    let anthropic = r#"{"type":"error","error":{"type":"authentication_error","message":"the API key that was sent is not known"},"request_id":"req-7"}"#;
    assert_eq!(refuse("/v1/messages", &wrong), (401, anthropic.to_owned()));
    assert!(
        refuse("/v1/messages/count_tokens", &wrong)
            .1
            .contains("authentication_error")
    );
    assert!(
        refuse("/v1/responses", &wrong)
            .1
            .starts_with(r#"{"error":{"message""#)
    );
    let full = Refusal::QueueTimeout {
        after: Duration::from_secs(1),
    };
    let (status, body) = refuse("/v1/messages", &full);
    assert!(
        status == 503 && body.contains("overloaded_error"),
        "{status} {body}"
    );
}

#[test]
fn client_text_is_quoted_up_to_a_limit() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(*cut(text), *expected);
    }
    check("short", "short");
    let long = "x".repeat(MAX_ECHO);
    check(&long, &long);
    check(&format!("{long}x"), &format!("{long}…"));
    let odd = format!("x{}", "é".repeat(MAX_ECHO));
    check(&odd, &format!("x{}…", "é".repeat(MAX_ECHO / 2 - 1)));
}

/// Collects codes with the names of their statuses, as `class` has them; "" if a policy or a worker chooses the status.
fn codes() -> BTreeSet<(String, String)> {
    let source = include_str!("refusal.rs");
    let from = source.find("fn class(").unwrap();
    let class = &source[from..from + source[from..].find("\n    }\n").unwrap()];
    let of_class = class.split("StatusCode::").skip(1).map(|pair| {
        let (status, rest) = pair.split_once(',').unwrap();
        (rest.split('"').nth(1).unwrap(), status)
    });
    let chosen = [("rejected_by_policy", ""), ("worker_refused", "")];
    let all = of_class.chain(chosen);
    all.map(|(code, status)| (code.to_owned(), status.to_owned()))
        .collect()
}

#[test]
fn the_page_of_errors_lists_every_code_with_its_status() {
    let page = include_str!("../../../../docs/api/errors.md");
    let (_, page) = page.split_once("\n## Clients\n").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let code = cells.next()?.strip_suffix('`')?.to_owned();
        let status = cells.next()?.parse().ok().map(|status| {
            let reason = StatusCode::from_u16(status).unwrap().canonical_reason();
            reason.unwrap().to_uppercase().replace(' ', "_")
        });
        Some((code, status.unwrap_or_default()))
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), codes());
}
