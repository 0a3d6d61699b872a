//! `GET /admin/me`.

use http::StatusCode;
use serde_json::{Value, json};

use super::{KEY, get, server_key};
use crate::{fast_fleet, router_with};

#[tokio::test]
async fn without_an_admin_key_everyone_reads_and_every_change_is_off_with_the_reason() {
    let fleet = fast_fleet(1).await;
    let router = router_with("", &fleet, "round-robin").await;
    let page = router.admin("/admin/me").await.unwrap();
    assert_eq!(
        (&page["role"], &page["key_configured"], &page["generation"]),
        (&json!("reader"), &json!(false), &json!(1)),
        "{page}"
    );
    let disabled = page["disabled"].as_object().unwrap();
    for (part, reason) in disabled {
        let reason = reason.as_str().unwrap_or_default();
        assert!(reason.contains("admin-api-key"), "{part}: {page}");
    }
    assert_eq!(disabled.len(), 6, "{page}");
}

#[tokio::test]
async fn the_admin_key_makes_an_admin_and_a_wrong_one_is_distinguished() {
    let fleet = fast_fleet(1).await;
    let router = router_with(&server_key(), &fleet, "round-robin").await;
    for (sent, role, key) in [
        (None, "reader", "none"),
        (Some("x"), "reader", "wrong"),
        (Some(KEY), "admin", "right"),
    ] {
        let headers: Vec<_> = sent.map(|sent| ("x-api-key", sent)).into_iter().collect();
        let page = get(&router.admin, "/admin/me", &headers).await.json().unwrap();
        assert_eq!(
            (&page["role"], &page["key"]),
            (&json!(role), &json!(key)),
            "{page}"
        );
        assert_eq!(page["disabled"]["changes"], Value::Null, "{page}");
        assert_eq!(page["reads_need_key"], json!(false));
    }
}

#[tokio::test]
async fn a_key_for_reads_guards_the_page_too() {
    let fleet = fast_fleet(1).await;
    let server = format!("admin-key-for-reads = true\n{}", server_key());
    let router = router_with(&server, &fleet, "round-robin").await;
    let refused = get(&router.admin, "/admin/me", &[]).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    let page = get(&router.admin, "/admin/me", &[("x-api-key", KEY)]).await;
    assert_eq!(page.json().unwrap()["reads_need_key"], json!(true));
}
