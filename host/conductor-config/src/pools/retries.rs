//! `retries` and `timeouts` of a pool: retry budget, backoff, and timeouts.

use std::time::Duration;

use toml::de::DeValue;

use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;

/// `[pools.NAME.retries]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RetriesConfig {
    /// Retry budget: retries per request.
    pub budget: f64,
    /// Additional retries per second.
    pub min_per_second: f64,
    /// First backoff before a retry.
    pub backoff: Duration,
    /// Longest backoff.
    pub longest_backoff: Duration,
    /// Statuses that are retried with another worker.
    pub statuses: Vec<u16>,
    /// Most workers that may close the connection on one request.
    pub crashes: u32,
}

impl Default for RetriesConfig {
    fn default() -> Self {
        Self {
            budget: 0.2,
            min_per_second: 10.0,
            backoff: Duration::from_millis(25),
            longest_backoff: Duration::from_millis(250),
            statuses: vec![429, 500, 502, 503, 504],
            crashes: 2,
        }
    }
}

/// `[pools.NAME.timeouts]`; `None` for the value of `[server]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeoutsConfig {
    /// For connecting to a worker.
    pub connect: Option<Duration>,
    /// For the head of an answer.
    pub first_byte: Option<Duration>,
    /// For the first byte of a stream; `None` for that of the head.
    pub first_token: Option<Duration>,
    /// Between two chunks.
    pub idle: Option<Duration>,
    /// For the whole request; the inner `None` is no limit.
    pub request: Option<Option<Duration>>,
}

/// Largest shares and rates; more are typing errors.
const MOST_SHARE: f64 = 16.0;
const MOST_PER_SECOND: f64 = 1e6;

pub(crate) fn read_retries(section: Option<Section<'_>>) -> RetriesConfig {
    let default = RetriesConfig::default();
    let Some(mut retries) = section else {
        return default;
    };
    let mut number = |key, default, most| {
        let item: Option<Item<'_>> = retries.item(key);
        item.and_then(|item| item.not_negative(most)).unwrap_or(default)
    };
    let budget = number("budget", default.budget, MOST_SHARE);
    let min_per_second = number("min-per-second", default.min_per_second, MOST_PER_SECOND);
    let pauses = Duration::ZERO..=Duration::from_secs(60);
    let backoff = retries.duration("backoff", default.backoff, pauses.clone());
    let longest = default.longest_backoff.max(backoff);
    let config = RetriesConfig {
        budget,
        min_per_second,
        backoff,
        longest_backoff: retries.duration("longest-backoff", longest, pauses),
        statuses: retries
            .item("statuses")
            .and_then(|item| read_statuses(&item))
            .unwrap_or(default.statuses),
        crashes: retries
            .item("crashes")
            .and_then(|item| item.count(&(1..=16)))
            .and_then(|crashes| u32::try_from(crashes).ok())
            .unwrap_or(default.crashes),
    };
    retries.finish();
    config
}

fn read_statuses(item: &Item<'_>) -> Option<Vec<u16>> {
    let DeValue::Array(elements) = item.value else {
        return item.wrong_type("a list of statuses");
    };
    let status = |element: Item<'_>| {
        element
            .count(&(400..=599))
            .and_then(|status| u16::try_from(status).ok())
    };
    let statuses = elements.iter();
    Some(
        statuses
            .filter_map(|element| status(item.element(element.get_ref(), element.span())))
            .collect(),
    )
}

pub(crate) fn read_timeouts(section: Option<Section<'_>>) -> TimeoutsConfig {
    let Some(mut timeouts) = section else {
        return TimeoutsConfig::default();
    };
    let mut time = |key| {
        timeouts
            .item(key)
            .and_then(|item: Item<'_>| item.duration(&TIMEOUTS))
    };
    let config = TimeoutsConfig {
        connect: time("connect"),
        first_byte: time("first-byte"),
        first_token: time("first-token"),
        idle: time("idle"),
        request: timeouts.item("request").and_then(|item| read_whole(&item)),
    };
    timeouts.finish();
    config
}

/// Reads a time, or `"off"`.
pub(crate) fn read_whole(item: &Item<'_>) -> Option<Option<Duration>> {
    if item.value.as_str() == Some("off") {
        return Some(None);
    }
    item.duration(&TIMEOUTS).map(Some)
}
