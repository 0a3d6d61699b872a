//! Reference page of all metric families: written from a page of a running router, and compared with the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::metrics::REFERENCE as METRICS;
use crate::metrics_families::families;
use crate::metrics_page::Family;

const REPLICAS: &str = include_str!("../../../../host/docs/operation/replicas.md");

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

/// Beginning of the names of the exchange between routers, all of which the current release adds.
const OF_REPLICAS: &str = "conductor_replicas_";

/// Queries with more detail than the usual one of their type.
const QUERIES: [(&str, &str); 10] = [
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
    (
        "conductor_edge_tls_certificate_expiry_timestamp_seconds",
        "conductor_edge_tls_certificate_expiry_timestamp_seconds - time()",
    ),
    (
        "conductor_memory_limit_bytes",
        "conductor_memory_resident_bytes / conductor_memory_limit_bytes",
    ),
    ("process_open_fds", "process_open_fds / process_max_fds"),
];

/// First labels of all families with such a name, which the page of metrics has once. The first match applies.
const SHARED: [(&str, &[&str]); 5] = [
    ("conductor_shadow_log_", &[]),
    ("conductor_arm_", &["pool", "route", "policy"]),
    ("conductor_canary_", &["pool", "route", "policy"]),
    ("conductor_shadow_", &["pool", "route", "policy"]),
    ("conductor_store_", &["store"]),
];

/// Returns the documented families with their labels. `NAME_{a,b}` stands for `NAME_a` and `NAME_b`.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut families = BTreeMap::new();
    let mut add = |name: &str, own: &str| {
        let shared = SHARED.iter().find(|(prefix, _)| name.starts_with(prefix));
        let shared = shared.into_iter().flat_map(|(_, labels)| *labels).copied();
        let own = own.split(',').filter(|label| !label.is_empty());
        let labels: Vec<String> = shared.chain(own).map(str::to_owned).collect();
        let name = name.trim_end_matches("_total").to_owned();
        let known: &mut Vec<String> = families.entry(name).or_default();
        if labels.len() > known.len() {
            *known = labels;
        }
    };
    let metrics = METRICS
        .split('`')
        .filter(|code| code.starts_with("conductor_") || code.starts_with("process_"));
    let replicas = REPLICAS.split('`').filter(|code| code.starts_with(OF_REPLICAS));
    for code in metrics.chain(replicas) {
        let (name, braces) = code.split_once('{').unwrap_or((code, ""));
        let braces = braces.trim_end_matches('}');
        if name.ends_with('_') {
            braces
                .split(',')
                .for_each(|part| add(&format!("{name}{part}"), ""));
        } else if !braces.contains('=') {
            add(name, braces);
        }
    }
    families
}

/// Returns the labels of a family, without the bound of a bucket.
fn labels(name: &str, family: &Family, documented: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let Some(sample) = family.samples.first() else {
        return documented.get(name).cloned().unwrap_or_default();
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
    let documented = documented();
    let mut page =
        "# Reference of metrics\n\n    UPDATE_METRICS=1 cargo nextest run -p e2e reference_of_metrics\n\n\
        The command writes this page from the metrics of running routers.\n\
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
            None if NEW.contains(&&**name) || name.starts_with(OF_REPLICAS) => "new",
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
async fn families_and_their_labels_are_documented() {
    let (families, documented) = (families().await, documented());
    let exposed: BTreeSet<&String> = families.keys().collect();
    let described: BTreeSet<&String> = documented.keys().collect();
    let unknown: Vec<_> = exposed.difference(&described).collect();
    assert!(unknown.is_empty(), "in no table: {unknown:?}");
    let absent: Vec<_> = described.difference(&exposed).collect();
    assert!(absent.is_empty(), "no router exposes them: {absent:?}");
    for (name, family) in &families {
        // The table of former names leaves the labels to their successors.
        if family.help.starts_with("Deprecated") {
            continue;
        }
        for sample in &family.samples {
            let own = sample
                .labels
                .iter()
                .map(|(label, _)| label)
                .filter(|label| *label != "le");
            assert!(own.eq(&documented[name]), "{name} has {sample:?}");
        }
    }
}
