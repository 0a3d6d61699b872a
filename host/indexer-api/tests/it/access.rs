//! API keys.

use serde_json::json;

use crate::service::{Running, registration};

#[test]
fn without_the_key_only_health_is_served() {
    let running = Running::start_with(Some("secret"), Vec::new());
    let status = |path: &str, headers: &[(&str, &str)]| running.send("GET", path, headers, b"").status;
    assert_eq!(status("/services", &[]), 401);
    assert_eq!(status("/services", &[("authorization", "Bearer wrong!")]), 401);
    assert_eq!(status("/services", &[("authorization", "Bearer secret2")]), 401);
    assert_eq!(status("/services", &[("authorization", "Basic secret")]), 401);
    assert_eq!(status("/services", &[("authorization", "bearer secret")]), 200);
    assert_eq!(status("/health", &[]), 200);
    assert_eq!(status("/", &[]), 200);
    assert_eq!(
        running.post("/query", &json!({})).json()["reason"],
        "unauthorized"
    );
}

/// Requests that a browser sends across sites without a preflight: with `Origin`, and no body or one of three types.
#[test]
fn a_web_page_can_register_nothing() {
    let running = Running::start();
    let body = registration("a", json!({})).to_string();
    let send = |path: &str, headers: &[(&str, &str)]| {
        let answer = running.send("POST", path, headers, body.as_bytes());
        (answer.status, answer.json()["reason"].clone())
    };
    let json = ("content-type", "application/json");
    for path in ["/register", "/unregister"] {
        assert_eq!(
            send(path, &[json, ("origin", "http://evil.example")]),
            (403, json!("sent_by_a_page"))
        );
        assert_eq!(send(path, &[]), (400, json!("unsupported_content_type")));
        for kind in [
            "text/plain; application/json",
            "text/plain;json",
            "application/x-www-form-urlencoded",
            "application/jsonp",
        ] {
            let refused = send(path, &[("content-type", kind)]);
            assert_eq!(refused, (400, json!("unsupported_content_type")), "{kind}");
        }
    }
    assert!(running.followed().is_empty());
    let with_parameter = [("content-type", "Application/JSON; charset=utf-8")];
    assert_eq!(send("/register", &with_parameter).0, 200);
}

#[test]
fn with_its_key_a_page_may_register() {
    let running = Running::start_with(Some("secret"), Vec::new());
    let body = registration("a", json!({})).to_string();
    let headers = [
        ("authorization", "Bearer secret"),
        ("origin", "http://ours.example"),
        ("host", "indexer.example"),
    ];
    assert_eq!(
        running
            .send("POST", "/register", &headers, body.as_bytes())
            .status,
        200
    );
}

/// A page's domain that points at the loopback.
#[test]
fn a_rebound_name_is_answered_nothing() {
    let running = Running::start();
    let status = |method: &str, path: &str, host: &str| {
        let headers = [("host", host), ("content-type", "application/json")];
        let answer = running.send(method, path, &headers, b"{}");
        (answer.status, answer.json()["reason"].clone())
    };
    for (method, path) in [
        ("GET", "/services"),
        ("GET", "/global_view"),
        ("POST", "/query"),
        ("POST", "/register"),
        ("POST", "/cache"),
    ] {
        let refused = status(method, path, "rebound.example:13333");
        assert_eq!(refused, (403, json!("host_not_allowed")), "{path}");
        assert_ne!(status(method, path, "127.0.0.1:13333").0, 403, "{path}");
    }
    assert_eq!(status("GET", "/health", "probe.example").0, 200);
}
