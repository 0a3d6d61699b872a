//! `[pools.NAME.admission]`: what a pool lets in and whom first; and what routes ask for their requests.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use crate::code::Code;
use crate::report::Problem;
use crate::section::Section;
use crate::server::TIMEOUTS;
use crate::value::Item;

/// `[pools.NAME.admission]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionConfig {
    /// Most requests under way.
    pub requests: BudgetConfig,
    /// What a worker takes of them where the budget is `Auto`.
    pub requests_per_worker: u64,
    /// Most prompt and expected output tokens under way.
    pub tokens: BudgetConfig,
    /// What a worker takes of them where the budget is `Auto` and its engine does not tell how many its cache holds.
    pub tokens_per_worker: Option<u64>,
    /// Output tokens expected of a request, or fewer where it wants fewer.
    pub expected_output: u64,
    /// What first tokens should come within, where a route says nothing.
    pub ttft_target: Option<Duration>,
    /// The time there should be between tokens, where a route says nothing.
    pub tbt_target: Option<Duration>,
    /// Requests are refused at once where more than this many times a target is predicted; none: never.
    pub early_rejection: Option<f64>,
    /// The header that names a request's class.
    pub priority_header: Option<String>,
    /// Whether `priority` of the body does, too.
    pub priority_in_body: bool,
    /// The header that names a request's tenant.
    pub tenant_header: Option<String>,
    /// The header that tells how long a client waits for the beginning of an answer.
    pub timeout_header: Option<String>,
}

/// How large a budget is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetConfig {
    /// Without limit.
    Off,
    /// So much.
    Fixed(u64),
    /// The sum of what the workers in service take.
    Auto,
}

/// What a route asks for its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectivesConfig {
    /// Their class; none: that of the client's key, else 0.
    pub priority: Option<i32>,
    /// What first tokens should come within.
    pub ttft_target: Option<Duration>,
    /// The time there should be between tokens.
    pub tbt_target: Option<Duration>,
    /// How long the beginning of an answer is waited for.
    pub start_timeout: Option<Duration>,
}

const MOST_REQUESTS: u64 = 10_000_000;
const MOST_TOKENS: u64 = 1_000_000_000_000;
/// Classes beyond would only be told apart by those who abuse them.
const CLASSES: RangeInclusive<i32> = -100..=100;
/// Anything beyond is as good as never.
const MOST_TIMES: f64 = 1_000.0;

pub(crate) fn read(mut section: Section<'_>) -> AdmissionConfig {
    let target = |item: Option<Item<'_>>| item.and_then(|item| item.duration(&TIMEOUTS));
    let config = AdmissionConfig {
        requests: budget(section.item("requests"), MOST_REQUESTS),
        requests_per_worker: section.count("requests-per-worker", 256, 1..=MOST_REQUESTS),
        tokens: budget(section.item("tokens"), MOST_TOKENS),
        tokens_per_worker: section
            .item("tokens-per-worker")
            .and_then(|item| item.count(&(1..=MOST_TOKENS))),
        expected_output: section.count("expected-output", 256, 0..=1_000_000),
        ttft_target: target(section.item("ttft-target")),
        tbt_target: target(section.item("tbt-target")),
        early_rejection: section
            .item("early-rejection")
            .and_then(|item| item.positive(MOST_TIMES)),
        priority_header: header(section.item("priority-header")),
        priority_in_body: section
            .item("priority-in-body")
            .and_then(|item| item.flag())
            .unwrap_or(false),
        tenant_header: header(section.item("tenant-header")),
        timeout_header: match section.item("timeout-header") {
            Some(item) => header(Some(item)),
            None => Some("x-request-timeout".to_owned()),
        },
    };
    section.finish();
    config
}

pub(crate) fn read_objectives(route: &mut Section<'_>) -> ObjectivesConfig {
    let time = |item: Option<Item<'_>>| item.and_then(|item| item.duration(&TIMEOUTS));
    ObjectivesConfig {
        priority: route.item("priority").and_then(|item| class(&item)),
        ttft_target: time(route.item("ttft-target")),
        tbt_target: time(route.item("tbt-target")),
        start_timeout: time(route.item("start-timeout")),
    }
}

/// `"off"`, `"auto"` or a number.
fn budget(item: Option<Item<'_>>, most: u64) -> BudgetConfig {
    let Some(item) = item else {
        return BudgetConfig::Off;
    };
    let read = match item.value {
        DeValue::String(_) => item.choice(&[("off", BudgetConfig::Off), ("auto", BudgetConfig::Auto)]),
        DeValue::Integer(_) => item.count(&(1..=most)).map(BudgetConfig::Fixed),
        _ => item.wrong_type("\"off\", \"auto\" or a whole number"),
    };
    read.unwrap_or(BudgetConfig::Off)
}

/// A whole number, also below 0.
fn class(item: &Item<'_>) -> Option<i32> {
    let number = item.number(f64::from(*CLASSES.end()))?;
    if number.fract() != 0.0 {
        return item.wrong_type("a whole number");
    }
    Some(number as i32)
}

/// The name of a header in lower case; none where it is empty.
fn header(item: Option<Item<'_>>) -> Option<String> {
    let text = item.as_ref()?.text()?;
    if text.text.is_empty() {
        return None;
    }
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !text.text.chars().all(is_token) {
        item?.report.push(
            Problem::new(
                Code::InvalidName,
                &text.span,
                format!("`{}` cannot name a header", text.text),
            )
            .help("use letters, digits and dashes"),
        );
        return None;
    }
    Some(text.text.to_ascii_lowercase())
}
