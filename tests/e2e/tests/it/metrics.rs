//! Names of metrics: each is documented, and former names have the values of their successors.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Fleet, TestRouter, eventually};
use http::Method;

use crate::affinity::informed;
use crate::metrics_page::{Family, Format, parse};
use crate::{chat, fast_fleet, router_over};

pub(crate) const REFERENCE: &str = include_str!("../../../../host/docs/operation/metrics.md");

/// Most series of a worker with one rank that publishes no events.
const MOST_OF_A_WORKER: usize = 80;

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

/// Returns the metrics page in a format.
pub(crate) async fn scrape(router: &TestRouter, accept: &str) -> String {
    let headers = [("accept", accept)];
    let page = router.admin.stream(Method::GET, "/metrics", &headers, "".into());
    page.await.unwrap().whole().await.unwrap().text()
}

/// Starts a router over the fleet, and waits until all series of its workers are there: their feeds are live, and they
/// have reported their load.
async fn settled(fleet: &Fleet) -> TestRouter {
    let router = informed(router_over(fleet, "ttft-queue").await).await;
    for number in 0..fleet.engines.len() {
        let reported = format!("conductor_worker_scrapes_total{{worker=\"w{number}\",result=\"reported\"}}");
        eventually("the worker has reported its load", || async {
            router.metric(&reported).await.unwrap() >= Some(1.0)
        })
        .await;
    }
    router
}

#[tokio::test]
async fn both_formats_have_the_same_series() {
    let fleet = fast_fleet(1).await;
    let router = settled(&fleet).await;
    let text = parse(&scrape(&router, "text/plain").await, Format::Text);
    let openmetrics = parse(
        &scrape(&router, "application/openmetrics-text").await,
        Format::OpenMetrics,
    );
    let series = |families: &BTreeMap<String, Family>| {
        let samples = families.values().flat_map(|family| &family.samples);
        let named = samples.map(|sample| format!("{}{:?}", sample.name, sample.labels));
        // The scrape itself changes the numbers of connections and tasks, not the series.
        named.collect::<BTreeSet<_>>()
    };
    assert_eq!(series(&text), series(&openmetrics));
}

/// Returns the number of series with a worker's label.
async fn worker_series(workers: usize) -> usize {
    let fleet = fast_fleet(workers).await;
    let router = settled(&fleet).await;
    let families = parse(&scrape(&router, "text/plain").await, Format::Text);
    let samples = families.values().flat_map(|family| &family.samples);
    samples
        .filter(|sample| sample.labels.iter().any(|(label, _)| label == "worker"))
        .count()
}

#[tokio::test]
async fn a_worker_has_a_bounded_number_of_series() {
    let (two, four) = (worker_series(2).await, worker_series(4).await);
    assert!(
        four - two <= 2 * MOST_OF_A_WORKER,
        "{two} series of 2 workers, {four} of 4"
    );
    let documented = format!("at most {MOST_OF_A_WORKER} series");
    assert!(REFERENCE.contains(&documented), "no `{documented}` in metrics.md");
}
