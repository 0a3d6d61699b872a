//! Reference page of all metric families: written from a page of a running router, and compared with the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::metrics::{REFERENCE as PAGE, scrape};
use crate::metrics_page::{Family, Format, parse};
use crate::{chat, fast_fleet, router_over};

const FILE: &str = "../../host/docs/operation/metrics-reference.md";
/// Longest line of the file.
const WIDTH: usize = 118;

/// Families that the current release adds. Their names may still change.
const NEW: &[&str] = &[
    "conductor_best_match_tokens",
    "conductor_build_info",
    "conductor_config_applied_timestamp_seconds",
    "conductor_decision_candidates",
    "conductor_discovery_bad_entries",
    "conductor_discovery_doubted_workers",
    "conductor_discovery_failing",
    "conductor_discovery_last_success_timestamp_seconds",
    "conductor_discovery_refreshes",
    "conductor_discovery_workers",
    "conductor_output_tokens",
    "conductor_overhead_seconds",
    "conductor_queue_oldest_wait_seconds",
    "conductor_reported_prompt_tokens",
    "conductor_requests_answered",
    "conductor_requests_in_flight",
    "conductor_runtime_alive_tasks",
    "conductor_runtime_delay_seconds",
    "conductor_runtime_global_queue_depth",
    "conductor_runtime_workers",
    "conductor_stage_seconds",
    "conductor_stream_longest_pause_seconds",
    "conductor_time_per_output_token_seconds",
    "conductor_worker_engine_kv_usage_ratio",
    "conductor_worker_engine_running_requests",
    "conductor_worker_engine_waiting_requests",
    "conductor_worker_output_tokens",
    "conductor_worker_state",
];

/// Queries with more detail than the usual one of their type.
const QUERIES: [(&str, &str); 8] = [
    (
        "conductor_best_match_tokens",
        "sum by (pool) (rate(conductor_best_match_tokens_total[5m]))\n/ sum by (pool) (rate(conductor_prompt_tokens_total[5m]))",
    ),
    (
        "conductor_matched_tokens",
        "sum by (pool) (rate(conductor_matched_tokens_total[5m]))\n/ sum by (pool) (rate(conductor_best_match_tokens_total[5m]))",
    ),
    (
        "conductor_cached_tokens",
        "sum by (pool) (rate(conductor_cached_tokens_total[5m]))\n/ sum by (pool) (rate(conductor_reported_prompt_tokens_total[5m]))",
    ),
    (
        "conductor_requests_answered",
        "sum by (pool, model) (rate(conductor_requests_answered_total{code=~\"5..\"}[5m]))\n/ sum by (pool, model) (rate(conductor_requests_answered_total[5m]))",
    ),
    (
        "conductor_budget_used",
        "sum by (pool, budget) (conductor_budget_used)\n/ sum by (pool, budget) (conductor_budget_limit)",
    ),
    (
        "conductor_workers",
        "sum by (pool) (conductor_workers{state=~\"ok|returning\"})\n/ sum by (pool) (conductor_workers)",
    ),
    (
        "conductor_worker_state",
        "conductor_worker_state{state!=\"ok\"} == 1",
    ),
    ("process_open_fds", "process_open_fds / process_max_fds"),
];

/// Labels that all families with such a name have, where the page of metrics has them once.
const SHARED: [(&str, &[&str]); 4] = [
    ("conductor_arm_", &["pool", "route", "policy"]),
    ("conductor_canary_", &["pool", "route", "policy"]),
    ("conductor_shadow_", &["pool", "route", "policy"]),
    ("conductor_store_", &["store"]),
];

/// Returns the labels that the page of metrics documents, by family.
fn documented_labels() -> BTreeMap<String, Vec<String>> {
    let code = PAGE.split('`').filter(|code| code.starts_with("conductor_"));
    let named = code.filter_map(|code| code.split_once('{'));
    let own = named.filter(|(name, _)| !name.ends_with('_'));
    own.map(|(name, labels)| {
        let labels = labels.trim_end_matches('}').split(',').map(str::to_owned);
        (name.trim_end_matches("_total").to_owned(), labels.collect())
    })
    .collect()
}

/// Returns the labels of a family, without the bound of a bucket.
fn labels(name: &str, family: &Family, documented: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let Some(sample) = family.samples.first() else {
        let shared = SHARED.iter().find(|(prefix, _)| name.starts_with(prefix));
        let shared = shared.map(|(_, labels)| labels.iter().map(|label| (*label).to_owned()).collect());
        return documented.get(name).cloned().or(shared).unwrap_or_default();
    };
    let own = sample.labels.iter().map(|(label, _)| label.clone());
    own.filter(|label| label != "le").collect()
}

fn query(name: &str, family: &Family, labels: &[String]) -> String {
    if let Some((_, query)) = QUERIES.iter().find(|(own, _)| *own == name) {
        return (*query).to_owned();
    }
    let list = labels.join(", ");
    let aggregate = |operation: &str, labels: &str| match labels {
        "" => operation.to_owned(),
        labels => format!("{operation} by ({labels}) "),
    };
    match &*family.kind {
        "counter" => format!("{}(rate({name}_total[5m]))", aggregate("sum", &list)),
        "histogram" => {
            let with_bound: Vec<&str> = labels.iter().map(String::as_str).chain(["le"]).collect();
            let sum = aggregate("sum", &with_bound.join(", "));
            format!("histogram_quantile(0.95, {sum}(rate({name}_bucket[5m])))")
        }
        _ if name.ends_with("_timestamp_seconds") => format!("time() - {name}"),
        _ if labels.iter().any(|label| label == "state" || label == "version") => format!("{name} == 1"),
        _ if labels.is_empty() => name.to_owned(),
        _ => format!("{}({name})", aggregate("max", &list)),
    }
}

/// Returns text in lines of limited length.
fn wrapped(text: &str) -> String {
    let (mut page, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > WIDTH {
            page.push('\n');
            length = 0;
        } else if length > 0 {
            page.push(' ');
            length += 1;
        }
        page.push_str(word);
        length += word.len();
    }
    page
}

fn reference(families: &BTreeMap<String, Family>) -> String {
    let documented = documented_labels();
    let mut page =
        "# Reference of metrics\n\n    UPDATE_METRICS=1 cargo nextest run -p e2e reference_of_metrics\n\n\
        The command writes this page from the metrics of a running router.\n\
        [Metrics](metrics.md) explains them by subject.\n\n\
        Names that are `stable` change only with a former name for one release.\n\
        Those that are `new` may change until the next release, and those `going away` are gone in it.\n"
            .to_owned();
    for (name, family) in families {
        let labels = labels(name, family, &documented);
        let series = if family.kind == "counter" {
            format!("{name}_total")
        } else {
            name.clone()
        };
        let stability = match family.help.strip_prefix("Deprecated") {
            Some(_) => "going away",
            None if NEW.contains(&&**name) => "new",
            None => "stable",
        };
        let list = match &labels[..] {
            [] => "No labels".to_owned(),
            labels => format!("Labels `{}`", labels.join("`, `")),
        };
        let kind = &family.kind;
        let help = wrapped(&format!("{}.", family.help.trim_end_matches('.')));
        let _ = writeln!(page, "\n## {series}\n\n{kind}, {stability}. {list}.\n\n{help}\n");
        for line in query(name, family, &labels).lines() {
            let _ = writeln!(page, "    {line}");
        }
    }
    page
}

/// Returns the families of a router that has answered requests.
async fn families() -> BTreeMap<String, Family> {
    let fleet = fast_fleet(2).await;
    let router = router_over(&fleet, "ttft-queue").await;
    for stream in [false, true] {
        let answer = router
            .client
            .open("/v1/chat/completions", &chat("hello", stream))
            .await;
        answer.unwrap().whole().await.unwrap();
    }
    parse(
        &scrape(&router, "application/openmetrics-text").await,
        Format::OpenMetrics,
    )
}

#[tokio::test]
async fn the_reference_of_metrics_is_that_of_the_code() {
    let families = families().await;
    let names: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    for name in NEW.iter().copied().chain(QUERIES.map(|(name, _)| name)) {
        assert!(names.contains(name), "{name} is not exposed");
    }
    let written = reference(&families);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap();
    assert!(
        present == written,
        "run with UPDATE_METRICS=1 to write {}",
        path.display()
    );
}

#[tokio::test]
async fn documented_labels_are_those_of_the_series() {
    let documented = documented_labels();
    for (name, family) in families().await {
        let Some(labels) = documented.get(&name) else {
            continue;
        };
        for sample in &family.samples {
            let own = sample
                .labels
                .iter()
                .map(|(label, _)| label)
                .filter(|label| *label != "le");
            assert!(own.eq(labels), "{name} has {sample:?}");
        }
    }
}
