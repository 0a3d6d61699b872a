//! `[metrics.buckets]`: bounds of histograms that differ from the defaults.

use std::collections::BTreeMap;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;

/// Most bounds of a histogram. Each is a series for every set of labels.
const MOST_BOUNDS: usize = 64;

/// Families with replaceable bounds, by their names without `conductor_`.
pub const HISTOGRAMS: [&str; 17] = [
    "time_to_first_token_seconds",
    "request_duration_seconds",
    "time_per_output_token_seconds",
    "stream_longest_pause_seconds",
    "stage_seconds",
    "overhead_seconds",
    "queue_wait_seconds",
    "pd_prefill_seconds",
    "matched_prompt_tokens",
    "decision_candidates",
    "policy_gather_seconds",
    "policy_decision_seconds",
    "shadow_decision_seconds",
    "tokenizer_seconds",
    "arm_time_to_first_token_seconds",
    "arm_time_between_tokens_seconds",
    "runtime_delay_seconds",
];

/// `[metrics]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsConfig {
    /// Ascending positive bounds by the name of the family. Families without an entry have their defaults.
    pub buckets: BTreeMap<&'static str, Vec<f64>>,
}

pub(crate) fn read(section: Option<Section<'_>>) -> MetricsConfig {
    let Some(mut metrics) = section else {
        return MetricsConfig::default();
    };
    let buckets = metrics
        .section("buckets", "`[metrics.buckets]`")
        .map(read_buckets);
    metrics.finish();
    MetricsConfig {
        buckets: buckets.unwrap_or_default(),
    }
}

fn read_buckets(mut section: Section<'_>) -> BTreeMap<&'static str, Vec<f64>> {
    let families = HISTOGRAMS.iter().filter_map(|family| {
        let item = section.item(family)?;
        Some((*family, read_bounds(&item)?))
    });
    let buckets = families.collect();
    section.finish();
    buckets
}

/// Reads a list of ascending positive numbers.
fn read_bounds(item: &Item<'_>) -> Option<Vec<f64>> {
    let elements = item.elements("a list of numbers")?;
    let bounds: Vec<Option<f64>> = elements.iter().map(|element| element.positive(1e15)).collect();
    let bounds: Vec<f64> = bounds.into_iter().collect::<Option<_>>()?;
    let fault = if bounds.is_empty() || bounds.len() > MOST_BOUNDS {
        format!(
            "`{}` must have 1 to {MOST_BOUNDS} bounds, not {}",
            item.key,
            bounds.len()
        )
    } else if let Some(pair) = bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
        format!(
            "the bounds of `{}` must ascend: {} stands before {}",
            item.key, pair[0], pair[1]
        )
    } else {
        return Some(bounds);
    };
    let help = format!("write for instance `{} = [0.1, 0.5, 1, 5]`", item.key);
    item.report
        .push(Problem::new(Code::InvalidValue, &item.span, fault).help(help));
    None
}
