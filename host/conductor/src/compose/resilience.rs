//! Health, scraping, retries and timeouts of a pool, as specs for the request path.

use conductor_config::{PoolConfig, RetriesConfig, TimeoutsConfig};
use http::StatusCode;
use http::uri::PathAndQuery;
use proxy::{HealthSpec, ModelListSpec, PoolTimeouts, ProbeSpec, RetrySpec, ScrapeSpec};

use super::workers::member_names;

pub(super) fn health_spec(pool: &PoolConfig) -> HealthSpec {
    let health = &pool.health;
    let draining = pool.workers.iter().filter(|worker| worker.drain);
    let probe = health.path.as_deref().and_then(path).map(|path| ProbeSpec {
        path,
        interval: health.interval,
        timeout: health.timeout,
        unhealthy_after: health.unhealthy_after,
        healthy_after: health.healthy_after,
    });
    HealthSpec {
        probe,
        failures: health.failures,
        server_errors: health.server_errors,
        failure_share: health.failure_share,
        failure_window: health.failure_window,
        failure_min_requests: health.failure_min_requests,
        most_ejected: health.most_ejected,
        base_ejection_time: health.base_ejection_time,
        max_ejection_time: health.max_ejection_time,
        slow_start: health.slow_start,
        draining: draining
            .flat_map(member_names)
            .map(String::into_boxed_str)
            .collect(),
    }
}

pub(super) fn scrape_spec(pool: &PoolConfig) -> Option<ScrapeSpec> {
    let scrape = pool.scrape.as_ref()?;
    Some(ScrapeSpec {
        path: path(&scrape.path)?,
        interval: scrape.interval,
        timeout: scrape.timeout,
    })
}

pub(super) fn model_list_spec(pool: &PoolConfig) -> Option<ModelListSpec> {
    let list = pool.model_list.as_ref()?;
    Some(ModelListSpec {
        path: path(&list.path)?,
        interval: list.interval,
        timeout: list.timeout,
    })
}

pub(super) fn retry_spec(retries: &RetriesConfig) -> RetrySpec {
    let statuses = retries.statuses.iter();
    RetrySpec {
        share: retries.budget,
        per_second: retries.min_per_second,
        backoff: retries.backoff,
        longest_backoff: retries.longest_backoff,
        statuses: statuses
            .filter_map(|status| StatusCode::from_u16(*status).ok())
            .collect(),
        crashes: retries.crashes,
    }
}

pub(super) fn pool_timeouts(timeouts: TimeoutsConfig) -> PoolTimeouts {
    PoolTimeouts {
        connect: timeouts.connect,
        first_byte: timeouts.first_byte,
        first_token: timeouts.first_token,
        idle: timeouts.idle,
        request: timeouts.request,
    }
}

/// Returns the path. The configuration has checked that it is one.
fn path(text: &str) -> Option<PathAndQuery> {
    PathAndQuery::try_from(text).ok()
}
