//! API keys.

use serde_json::json;

use crate::service::Running;

#[test]
fn without_the_key_only_health_is_told() {
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
