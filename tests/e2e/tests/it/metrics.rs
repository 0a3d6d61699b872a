//! Names of metrics: each is documented, and former names have the values of their successors.

use std::collections::BTreeSet;

use crate::{chat, fast_fleet, router_over};

const REFERENCE: &str = include_str!("../../../../host/docs/operation/metrics.md");

/// Former name, name, and their ratio.
const RENAMED: [(&str, &str, f64); 5] = [
    (
        "conductor_config_valid",
        "conductor_config_last_reload_successful",
        1.0,
    ),
    ("conductor_policy_in_force", "conductor_policy_active", 1.0),
    (
        "conductor_kv_feed_silences_total",
        "conductor_kv_feed_resubscribes_total",
        1.0,
    ),
    ("conductor_worker_resting", "conductor_worker_ejected", 1.0),
    (
        "conductor_worker_ttft_ewma_milliseconds",
        "conductor_worker_ttft_ewma_seconds",
        1e3,
    ),
];

/// Returns the metrics page of a router that has answered a streamed request.
async fn page() -> String {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "ttft-queue").await;
    let body = chat("hello", true);
    let stream = router.client.open("/v1/chat/completions", &body).await.unwrap();
    stream.whole().await.unwrap();
    router.admin.get("/metrics").await.unwrap().text()
}

/// Returns the documented families. `NAME_{a,b}` stands for `NAME_a` and `NAME_b`.
fn documented() -> BTreeSet<String> {
    let mut families = BTreeSet::new();
    for start in REFERENCE.split('`').filter(|code| code.starts_with("conductor_")) {
        let (name, labels) = start.split_once('{').unwrap_or((start, ""));
        if name.ends_with('_') {
            let parts = labels.trim_end_matches('}').split(',');
            families.extend(parts.map(|part| format!("{name}{part}")));
        } else {
            families.insert(name.trim_end_matches("_total").to_owned());
        }
    }
    families
}

/// Returns the series of a metric: labels and value.
fn series<'a>(page: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let values = lines.filter(|rest| rest.starts_with(['{', ' ']));
    values
        .filter_map(|rest| rest.rsplit_once(' '))
        .map(|(labels, value)| (labels, value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn every_exposed_family_is_documented() {
    let page = page().await;
    let documented = documented();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exposed: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    assert!(exposed.len() > 60, "{page}");
    let unknown: Vec<&&str> = exposed
        .iter()
        .filter(|name| !documented.contains(name.trim_end_matches("_total")))
        .collect();
    assert!(unknown.is_empty(), "not in metrics.md: {unknown:?}");
}

#[tokio::test]
async fn a_former_name_has_the_value_of_its_successor() {
    let page = page().await;
    for (former, name, ratio) in RENAMED {
        let (formers, successors) = (series(&page, former), series(&page, name));
        assert!(!successors.is_empty(), "no {name} in:\n{page}");
        assert_eq!(formers.len(), successors.len(), "{name}");
        for ((labels, old), (same, new)) in formers.into_iter().zip(successors) {
            assert_eq!(labels, same, "{name}");
            let is_equal = (old - new * ratio).abs() < 1e-6 || (old.is_nan() && new.is_nan());
            assert!(is_equal, "{former}{labels} is {old}, {name} is {new}");
        }
        let help = format!("# HELP {former} Deprecated: use {name}");
        assert!(page.contains(&help), "no `{help}` in:\n{page}");
    }
}
