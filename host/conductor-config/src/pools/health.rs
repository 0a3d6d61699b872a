//! `health`, `scrape` and `model-list` of a pool: health checks, ejection, and periodic requests to workers.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;

/// `[pools.NAME.health]`.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthConfig {
    /// Path of the health check; `None` for no checks.
    pub path: Option<String>,
    /// Interval.
    pub interval: Duration,
    /// Timeout.
    pub timeout: Duration,
    /// Consecutive failed checks that take a worker out of service.
    pub unhealthy_after: u32,
    /// Consecutive successful checks that return it to service.
    pub healthy_after: u32,
    /// Consecutive failures that eject a worker.
    pub failures: u32,
    /// Consecutive answers of 500 or more that eject a worker; 0 for never.
    pub server_errors: u32,
    /// Share of failed requests that ejects a worker.
    pub failure_share: f64,
    /// Time window of that share.
    pub failure_window: Duration,
    /// Fewest requests in the window; 0 disables the share.
    pub failure_min_requests: u32,
    /// Most ejected workers of the pool, as a share.
    pub most_ejected: f64,
    /// First ejection time.
    pub base_ejection_time: Duration,
    /// Longest ejection time.
    pub max_ejection_time: Duration,
    /// Slow start: time during which a returned worker gets a rising share of requests.
    pub slow_start: Duration,
}

/// `[pools.NAME.scrape]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// Path of the metrics.
    pub path: String,
    /// Interval.
    pub interval: Duration,
    /// Timeout.
    pub timeout: Duration,
}

/// `[pools.NAME.model-list]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelListConfig {
    /// Path of the list of a worker's models and adapters.
    pub path: String,
    /// Interval.
    pub interval: Duration,
    /// Timeout.
    pub timeout: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        Self {
            path: Some("/health".to_owned()),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 2,
            failures: 1,
            server_errors: 0,
            failure_share: 0.5,
            failure_window: Duration::from_secs(10),
            failure_min_requests: 20,
            most_ejected: 0.5,
            base_ejection_time: Duration::from_secs(1),
            max_ejection_time: Duration::from_secs(30),
            slow_start: Duration::from_secs(10),
        }
    }
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        Self {
            path: "/metrics".to_owned(),
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
        }
    }
}

impl Default for ModelListConfig {
    fn default() -> Self {
        Self {
            path: "/v1/models".to_owned(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
        }
    }
}

/// Range of intervals.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);
/// Range of times that may be zero.
const PAUSES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

pub(crate) fn read_health(section: Option<Section<'_>>) -> HealthConfig {
    let default = HealthConfig::default();
    let Some(mut health) = section else {
        return default;
    };
    let base_ejection_time = health
        .renamed_item("base-ejection-time", "rest")
        .and_then(|item| item.duration(&TIMEOUTS))
        .unwrap_or(default.base_ejection_time);
    let config = HealthConfig {
        path: match health.item("path") {
            Some(item) => read_path(&item),
            None => default.path,
        },
        interval: health.duration("interval", default.interval, INTERVALS),
        timeout: health.duration("timeout", default.timeout, TIMEOUTS),
        unhealthy_after: count(&mut health, "unhealthy-after", default.unhealthy_after, 1),
        healthy_after: count(&mut health, "healthy-after", default.healthy_after, 1),
        failures: count(&mut health, "failures", default.failures, 1),
        server_errors: count(&mut health, "server-errors", default.server_errors, 0),
        failure_share: share(&mut health, "failure-share", default.failure_share),
        failure_window: health.duration("failure-window", default.failure_window, TIMEOUTS),
        failure_min_requests: count(
            &mut health,
            "failure-min-requests",
            default.failure_min_requests,
            0,
        ),
        most_ejected: share(&mut health, "most-ejected", default.most_ejected),
        base_ejection_time,
        max_ejection_time: health
            .renamed_item("max-ejection-time", "longest-rest")
            .and_then(|item| item.duration(&TIMEOUTS))
            .unwrap_or(default.max_ejection_time.max(base_ejection_time)),
        slow_start: health.duration("slow-start", default.slow_start, PAUSES),
    };
    health.finish();
    config
}

/// Returns `None` if scraping is off.
pub(crate) fn read_scrape(section: Option<Section<'_>>) -> Option<ScrapeConfig> {
    let default = ScrapeConfig::default();
    let Some(mut scrape) = section else {
        return Some(default);
    };
    let path = match scrape.item("path") {
        Some(item) => read_path(&item),
        None => Some(default.path),
    };
    let interval = scrape.duration("interval", default.interval, INTERVALS);
    let timeout = scrape.duration("timeout", default.timeout, TIMEOUTS);
    scrape.finish();
    Some(ScrapeConfig {
        path: path?,
        interval,
        timeout,
    })
}

/// Returns `None` if the model list is off.
pub(crate) fn read_model_list(section: Option<Section<'_>>) -> Option<ModelListConfig> {
    let default = ModelListConfig::default();
    let Some(mut list) = section else {
        return Some(default);
    };
    let path = match list.item("path") {
        Some(item) => read_path(&item),
        None => Some(default.path),
    };
    let interval = list.duration("interval", default.interval, INTERVALS);
    let timeout = list.duration("timeout", default.timeout, TIMEOUTS);
    list.finish();
    Some(ModelListConfig {
        path: path?,
        interval,
        timeout,
    })
}

/// Reads a path, or `"off"`.
fn read_path(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if text.text == "off" {
        return None;
    }
    let is_path = text.text.starts_with('/') && text.text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path
        || text
            .text
            .contains(['#', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
    {
        item.report.push(
            Problem::new(
                Code::InvalidValue,
                &text.span,
                format!("`{}` is not a path", text.text),
            )
            .help("write a path such as \"/health\", or \"off\""),
        );
        return None;
    }
    Some(text.text.to_owned())
}

fn count(section: &mut Section<'_>, key: &'static str, default: u32, least: u64) -> u32 {
    let count = section.count(key, u64::from(default), least..=1_000_000);
    u32::try_from(count).expect("within a range that ends at a u32")
}

fn share(section: &mut Section<'_>, key: &'static str, default: f64) -> f64 {
    let item = section.item(key);
    item.and_then(|item| item.positive(1.0)).unwrap_or(default)
}
