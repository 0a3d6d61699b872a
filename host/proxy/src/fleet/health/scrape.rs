//! Load scrape: fetches a worker's own report of its load.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use inference_api::{EngineLoad, engine_loads, sglang_loads};
use routing::EngineReport;
use worker_client::{Authorization, SendTimeouts};

use super::spec::ScrapeSpec;
use crate::base::label::ScrapeResult;
use crate::fleet::pool::Member;
use crate::fleet::worker::WorkerHandle;

/// Longest page that is read, in bytes; vLLM's has 60 KB.
const LONGEST_PAGE: usize = 4 << 20;
/// SGLang's page of loads, for servers that have no metrics.
const SGLANG_LOADS: PathAndQuery = PathAndQuery::from_static("/get_load");

/// Queries once at the URL that these members of the pool share, and stores the report of each. Returns `true` if an
/// early retry is worthwhile.
pub(super) async fn scrape(members: &[&Member], spec: &ScrapeSpec, authorization: &Authorization) -> bool {
    let Some(first) = members.first() else {
        return false;
    };
    let scraped = tokio::time::timeout(spec.timeout, fetch(&first.link, spec, authorization)).await;
    let scraped = scraped.unwrap_or(Err(ScrapeResult::Failed));
    let (result, loads) = match scraped {
        Ok(loads) if loads.is_empty() => (ScrapeResult::Nothing, loads),
        Ok(loads) => (ScrapeResult::Reported, loads),
        Err(result) => (result, BTreeMap::new()),
    };
    for member in members {
        let rank = member.worker.spec().rank;
        let load = match rank {
            Some(rank) => loads.get(&rank.0).copied(),
            None => sum(&loads),
        };
        if let Some(load) = load {
            member
                .worker
                .load()
                .record_engine_report(report(load), member.link.now_ms());
        }
        member.link.metrics.health.scraped(result);
    }
    !matches!(result, ScrapeResult::NoPage | ScrapeResult::Nothing)
}

/// Returns the load of a worker that stands for all its ranks.
fn sum(loads: &BTreeMap<u16, EngineLoad>) -> Option<EngineLoad> {
    let add = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    };
    let whole = loads.values().copied().reduce(|a, b| EngineLoad {
        running: add(a.running, b.running),
        waiting: add(a.waiting, b.waiting),
        kv_usage: add(a.kv_usage, b.kv_usage),
        kv_tokens: add(a.kv_tokens, b.kv_tokens),
    })?;
    let reporting = loads.values().filter(|load| load.kv_usage.is_some()).count();
    Some(EngineLoad {
        // Ranks are alike in size.
        kv_usage: whole.kv_usage.map(|usage| usage / reporting.max(1) as f64),
        ..whole
    })
}

fn report(load: EngineLoad) -> EngineReport {
    EngineReport {
        running: load.running.unwrap_or(f64::NAN),
        waiting: load.waiting.unwrap_or(f64::NAN),
        kv_usage: load.kv_usage.unwrap_or(f64::NAN),
        kv_tokens: load.kv_tokens.unwrap_or(f64::NAN),
    }
}

async fn fetch(
    link: &Arc<WorkerHandle>,
    spec: &ScrapeSpec,
    authorization: &Authorization,
) -> Result<BTreeMap<u16, EngineLoad>, ScrapeResult> {
    match get(link, &spec.path, authorization, spec.timeout).await {
        Ok(page) => {
            let loads = engine_loads(&String::from_utf8_lossy(&page));
            let has_loads = !loads.is_empty();
            Ok(if has_loads { loads } else { sglang_loads(&page) })
        }
        Err(ScrapeResult::NoPage) => {
            let page = get(link, &SGLANG_LOADS, authorization, spec.timeout).await?;
            Ok(sglang_loads(&page))
        }
        Err(result) => Err(result),
    }
}

async fn get(
    link: &WorkerHandle,
    page: &PathAndQuery,
    authorization: &Authorization,
    patience: Duration,
) -> Result<Bytes, ScrapeResult> {
    let limits = SendTimeouts {
        connect: patience,
        first_byte: patience,
    };
    let fetched = link
        .upstream
        .page(page, &HeaderMap::new(), authorization, limits, LONGEST_PAGE)
        .await;
    let (status, page) = fetched.map_err(|_| ScrapeResult::Failed)?;
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            Err(ScrapeResult::NoPage)
        }
        status if status.is_success() => Ok(page),
        _ => Err(ScrapeResult::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_of_several_ranks_has_their_sum_and_their_mean_usage() {
        let rank = |running, usage| EngineLoad {
            running: Some(running),
            waiting: None,
            kv_usage: Some(usage),
            kv_tokens: Some(100.0),
        };
        let loads = BTreeMap::from([(0, rank(1.0, 0.2)), (1, rank(4.0, 0.6))]);
        let whole = sum(&loads).unwrap();
        assert_eq!((whole.running, whole.waiting), (Some(5.0), None));
        assert_eq!((whole.kv_usage, whole.kv_tokens), (Some(0.4), Some(200.0)));
        assert_eq!(sum(&BTreeMap::new()), None);
    }
}
