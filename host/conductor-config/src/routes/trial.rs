//! `split`, `canary` and `shadow` of a route: trials of other policies.

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Span;
use crate::document::value::{Item, Text};
use crate::policies::model::PolicyConfig;
use crate::routes::names::{Names, find_policy};

/// Unit of shares: one of 10,000 parts.
const PARTS: u32 = 10_000;
/// Largest margin: beyond a hundred times nothing is ever stopped.
const LARGEST_TTFT_MARGIN: f64 = 100.0;

/// Trials of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialConfig {
    /// Policies of `split` except the route's own, in the order of the file.
    pub canaries: Vec<ShareConfig>,
    /// `canary`: the stop rule.
    pub canary: CanaryConfig,
    /// Shadow policies, which decide nothing.
    pub shadows: Vec<String>,
    /// Share of requests for shadows, above 0 and up to 1.
    pub shadow_sample: f64,
}

/// A policy that decides a share of a route's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareConfig {
    /// A policy of the configuration.
    pub policy: String,
    /// Share in parts of 10,000.
    pub share: u32,
}

/// Stop rule of a canary: compares it with the route's policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CanaryConfig {
    /// Tolerated increase of the time to first token, as a share.
    pub ttft_margin: f64,
    /// Tolerated increase of the error share.
    pub error_margin: f64,
    /// Confidence of the test, at least a half and below 1.
    pub confidence: f64,
    /// Requests of either policy before the first test.
    pub least: u64,
    /// Consecutive failed requests that stop it at once; 0 for never.
    pub consecutive_failures: u64,
    /// A worse canary is stopped.
    pub stop: bool,
}

impl Default for CanaryConfig {
    fn default() -> Self {
        Self {
            ttft_margin: 0.1,
            error_margin: 0.01,
            confidence: 0.95,
            least: 200,
            consecutive_failures: 5,
            stop: true,
        }
    }
}

impl Default for TrialConfig {
    fn default() -> Self {
        Self {
            canaries: Vec::new(),
            canary: CanaryConfig::default(),
            shadows: Vec::new(),
            shadow_sample: 0.1,
        }
    }
}

/// Keys of the route that were read before.
pub(crate) struct RouteKeys<'k> {
    /// Policy, if readable.
    pub(crate) policy: Option<&'k str>,
    /// `prefill-policy` or `decode-policy`.
    pub(crate) of_phase: Option<(&'k str, Span)>,
}

pub(crate) fn read(
    route: &mut Section<'_>,
    keys: &RouteKeys<'_>,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
) -> TrialConfig {
    let report = route.report();
    let split = route.item("split");
    let canaries = split
        .as_ref()
        .map(|split| read_split(split, keys, names, implied))
        .unwrap_or_default();
    let rule = route.item("canary");
    let canary = match &rule {
        Some(rule) => Section::of(rule, "`canary` of `[[routes]]`".to_owned()).map(read_canary),
        None => None,
    };
    if let (Some(rule), None) = (&rule, &split) {
        let help = "add split = { \"cache-aware\" = 95, mine = 5 }, or leave `canary` out";
        report_alone(rule, "there is no `split`", help);
    }
    let shadow = route.item("shadow");
    let shadows = shadow.as_ref().map(|item| read_shadows(item, names, implied));
    let sample = route.item("shadow-sample");
    if let (Some(sample), None) = (&sample, &shadow) {
        report_alone(
            sample,
            "there is no `shadow`",
            "add shadow = [\"mine\"], or leave it out",
        );
    }
    if let (Some(split), Some((key, span))) = (&split, &keys.of_phase) {
        report_conflict(split, key, span, report);
    }
    TrialConfig {
        canaries,
        canary: canary.unwrap_or_default(),
        shadows: shadows.unwrap_or_default(),
        shadow_sample: sample
            .and_then(|item| item.positive(1.0))
            .unwrap_or(TrialConfig::default().shadow_sample),
    }
}

fn report_alone(item: &Item<'_>, why: &str, help: &str) {
    let message = format!("`{}` has no effect: {why}", item.key);
    item.report
        .push(Problem::new(Code::NeedsKey, &item.key_span, message).help(help));
}

fn report_conflict(split: &Item<'_>, key: &str, span: &Span, report: &Report) {
    report.push(
        Problem::new(
            Code::ConflictingKeys,
            &split.key_span,
            format!("`split` does not go with `{key}`: an arm is one policy"),
        )
        .label("this")
        .also(span, "and this")
        .help("keep one of the two: the policies of `split` decide on both workers of a pair"),
    );
}

/// Reads the canaries. The route's own policy gets the rest, which must equal its written share.
fn read_split(
    split: &Item<'_>,
    keys: &RouteKeys<'_>,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
) -> Vec<ShareConfig> {
    let example = "write split = { \"cache-aware\" = 95, mine = 5 }, in percent";
    if split.value.as_table().is_none() {
        split.wrong_type_but::<()>("a table of policies with their shares", Some(example.to_owned()));
        return Vec::new();
    }
    let Some(section) = Section::of(split, "`split` of `[[routes]]`".to_owned()) else {
        return Vec::new();
    };
    let report = split.report;
    let entries = section.entries();
    let mut arms = Vec::with_capacity(entries.len());
    for entry in &entries {
        let name = Text {
            text: &entry.key,
            span: entry.key_span.clone(),
        };
        let policy = find_policy(&name, names, implied, report);
        arms.push(policy.zip(read_share(entry)));
    }
    let Some(arms) = arms.into_iter().collect::<Option<Vec<(String, u32)>>>() else {
        return Vec::new();
    };
    let sum: u32 = arms.iter().map(|(_, share)| share).sum();
    if sum != PARTS {
        let sum = f64::from(sum) / 100.0;
        let message = format!("the shares of `split` add up to {sum}, not to 100");
        report.push(Problem::new(Code::InvalidValue, &split.span, message).help(example));
    }
    if let Some(own) = keys.policy
        && !arms.iter().any(|(policy, _)| policy == own)
    {
        report.push(
            Problem::new(
                Code::MissingKey,
                &split.span,
                format!("`split` leaves out `{own}`, the route's policy, which the others are compared with"),
            )
            .help(format!(
                "add \"{own}\" = its share in percent; or name another `policy`"
            )),
        );
    }
    let canaries = arms
        .into_iter()
        .filter(|(policy, _)| Some(policy.as_str()) != keys.policy);
    canaries
        .map(|(policy, share)| ShareConfig { policy, share })
        .collect()
}

/// Reads a percentage with at most two decimals, in parts.
fn read_share(entry: &Item<'_>) -> Option<u32> {
    let parts = share_parts(entry.positive(100.0)?);
    if parts.is_none() {
        let message = format!("the share of `{}` has more than two decimals", entry.key);
        entry
            .report
            .push(Problem::new(Code::InvalidValue, &entry.span, message).help("write at most two decimals"));
    }
    parts
}

/// Returns a percentage in parts of 10,000. `None` if it is below 0.01 or above 100, or has more than two decimals.
#[must_use]
pub fn share_parts(percent: f64) -> Option<u32> {
    let parts = percent * 100.0;
    let whole = parts.round();
    let is_share = (1.0..=f64::from(PARTS)).contains(&whole) && (parts - whole).abs() <= 1e-6;
    // Whole, and at most 10,000.
    is_share.then_some(whole as u32)
}

fn read_canary(mut canary: Section<'_>) -> CanaryConfig {
    let default = CanaryConfig::default();
    let report = canary.report();
    let mut margin = |key, most| canary.item(key).and_then(|item| item.positive(most));
    let ttft_margin = margin("ttft-margin", LARGEST_TTFT_MARGIN);
    let error_margin = margin("error-margin", 1.0);
    let confidence = canary.item("confidence");
    let confidence = confidence.and_then(|item| {
        let value = item.number(f64::MAX)?;
        if (0.5..=0.999_999).contains(&value) {
            return Some(value);
        }
        let message = format!(
            "`{}` must be at least 0.5 and at most 0.999999, not {value}",
            item.key
        );
        report.push(
            Problem::new(Code::OutOfRange, &item.span, message)
                .help("0.95 stops at most one in 20 canaries that are as good as the policy of the route"),
        );
        None
    });
    let least = canary.count("least", default.least, 10..=1_000_000_000);
    let failures = canary.count("consecutive-failures", default.consecutive_failures, 0..=1_000);
    let stop = canary.item("stop").and_then(|item| item.flag());
    canary.finish();
    CanaryConfig {
        ttft_margin: ttft_margin.unwrap_or(default.ttft_margin),
        error_margin: error_margin.unwrap_or(default.error_margin),
        confidence: confidence.unwrap_or(default.confidence),
        least,
        consecutive_failures: failures,
        stop: stop.unwrap_or(default.stop),
    }
}

/// Reads the shadows. The route's own policy may be one: its twin shows how much disagreement is chance.
fn read_shadows(item: &Item<'_>, names: &Names<'_>, implied: &mut Vec<PolicyConfig>) -> Vec<String> {
    let mut shadows: Vec<String> = Vec::new();
    for text in item.text_or_texts().unwrap_or_default() {
        if !shadows.iter().any(|known| known == text.text) {
            shadows.extend(find_policy(&text, names, implied, item.report));
            continue;
        }
        let message = format!("the shadow `{}` is set twice", text.text);
        let problem = Problem::new(Code::InvalidValue, &text.span, message);
        item.report.push(problem.help("keep one of the two"));
    }
    shadows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_has_at_most_two_decimals_and_no_share_is_empty_or_more_than_all() {
        for (percent, parts) in [(0.01, 1), (0.07, 7), (33.33, 3_333), (100.0, 10_000)] {
            assert_eq!(share_parts(percent), Some(parts), "{percent}");
        }
        for percent in [
            -1.0,
            0.0,
            0.001,
            0.005,
            0.009,
            1.234,
            100.01,
            f64::INFINITY,
            f64::NAN,
        ] {
            assert_eq!(share_parts(percent), None, "{percent}");
        }
    }
}
