//! `[pools.NAME.admission]`: admission control of a pool, and the objectives of routes.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;

/// `[pools.NAME.admission]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionConfig {
    /// Most concurrent requests.
    pub requests: BudgetConfig,
    /// Requests per worker, if the budget is `Auto`.
    pub requests_per_worker: u64,
    /// Most prompt and expected output tokens in progress.
    pub tokens: BudgetConfig,
    /// Tokens per worker, if the budget is `Auto` and the engine does not report its cache size.
    pub tokens_per_worker: Option<u64>,
    /// Expected output tokens of a request, or its own limit if lower.
    pub expected_output: u64,
    /// Target of the time to first token, for routes without one.
    pub ttft_target: Option<Duration>,
    /// Target of the time between tokens, for routes without one.
    pub tbt_target: Option<Duration>,
    /// Early rejection: refuses requests whose predicted time exceeds this multiple of a target; `None` for never.
    pub early_rejection: Option<f64>,
    /// Header with a request's priority class.
    pub priority_header: Option<String>,
    /// `priority` of the body sets the class too.
    pub priority_in_body: bool,
    /// Header with a request's tenant.
    pub tenant_header: Option<String>,
    /// Header with the client's timeout for the start of an answer.
    pub timeout_header: Option<String>,
}

/// Size of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetConfig {
    /// Without limit.
    Off,
    /// Fixed size.
    Fixed(u64),
    /// The sum over the workers in service.
    Auto,
}

/// A route's objectives for its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectivesConfig {
    /// Priority class; `None` for that of the client's key, else 0.
    pub priority: Option<i32>,
    /// Target of the time to first token.
    pub ttft_target: Option<Duration>,
    /// Target of the time between tokens.
    pub tbt_target: Option<Duration>,
    /// Timeout for the start of an answer.
    pub start_timeout: Option<Duration>,
}

const MOST_REQUESTS: u64 = 10_000_000;
const MOST_TOKENS: u64 = 1_000_000_000_000;
/// Range of priority classes.
const CLASSES: RangeInclusive<i32> = -100..=100;
/// Largest multiple of a target; more is practically never.
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

/// Reads `"off"`, `"auto"` or a number.
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

/// Reads a whole number, also below 0.
fn class(item: &Item<'_>) -> Option<i32> {
    let number = item.number(f64::from(*CLASSES.end()))?;
    if number.fract() != 0.0 {
        return item.wrong_type("a whole number");
    }
    Some(number as i32)
}

/// Returns the name of a header in lower case; `None` if empty.
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
