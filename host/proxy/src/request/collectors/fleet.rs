//! Collector of the fleet's state at scrape time.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::dispatch::pool_state::PoolState;
use crate::fleet::health::HealthStatus;
use crate::fleet::pool::Member;
use crate::request::snapshot::SnapshotCell;

#[derive(Debug)]
pub(crate) struct FleetCollector {
    cell: Arc<SnapshotCell>,
}

/// Gauge of each worker: name, help, and how to read it.
type WorkerGauge = (&'static str, &'static str, fn(&Member) -> f64);

const WORKER_GAUGES: [WorkerGauge; 14] = [
    (
        "worker_requests_in_flight",
        "Requests in flight at a worker",
        |member| f64::from(member.worker.load().own().requests),
    ),
    (
        "worker_requests_decoding",
        "Of those, requests past their first token, which is estimated if it is not observable",
        |member| f64::from(member.worker.load().own().decoding),
    ),
    (
        "worker_prefill_tokens",
        "Uncached prompt tokens of the other requests in flight",
        |member| member.worker.load().own().prefill_tokens as f64,
    ),
    (
        "worker_ttft_ewma_seconds",
        "Moving average of the time to first token; absent before the first",
        |member| member.worker.load().read().ttft_ewma_ms / 1e3,
    ),
    (
        "worker_ttft_ewma_milliseconds",
        "Deprecated: use conductor_worker_ttft_ewma_seconds",
        |member| member.worker.load().read().ttft_ewma_ms,
    ),
    (
        "worker_cost_prefill_error_ratio",
        "Recent error of `cost.prefill-ms` with its queue, as a share of the measured time; absent before the first prediction",
        |member| member.worker.load().cost().errors().prefill,
    ),
    (
        "worker_cost_transfer_error_ratio",
        "Recent error of `cost.transfer-ms`, as a share of the measured time; absent before the first prediction",
        |member| member.worker.load().cost().errors().transfer,
    ),
    (
        "worker_cost_tbt_error_ratio",
        "Recent error of `cost.tbt-ms`, as a share of the measured time; absent before the first prediction",
        |member| member.worker.load().cost().errors().tbt,
    ),
    ("worker_connections", "Open connections to a worker", |member| {
        member.link.upstream.open_connections() as f64
    }),
    (
        "worker_ejected",
        "1 while a worker is out of service: ejected, busy or unhealthy",
        ejected,
    ),
    (
        "worker_resting",
        "Deprecated: use conductor_worker_ejected",
        ejected,
    ),
    (
        "worker_pending",
        "1 while a worker was never reached; it gets requests only if no worker is in service",
        |member| f64::from(u8::from(member.link.status() == HealthStatus::Pending)),
    ),
    (
        "worker_returning",
        "1 during the slow start of a worker that returned to service",
        |member| f64::from(u8::from(member.link.status() == HealthStatus::Returning)),
    ),
    (
        "worker_load_age_seconds",
        "Age of the last load report of a worker's engine; absent before the first",
        |member| {
            let reported = member.worker.load().engine();
            reported.map_or(f64::NAN, |(_, at)| {
                member.link.now_ms().saturating_sub(at) as f64 / 1e3
            })
        },
    ),
];

/// Returns 1 for a worker that was in service and is not now.
fn ejected(member: &Member) -> f64 {
    let status = member.link.status();
    f64::from(u8::from(status.is_out() && status != HealthStatus::Pending))
}

impl FleetCollector {
    pub(crate) fn new(cell: Arc<SnapshotCell>) -> Self {
        Self { cell }
    }
}

impl Collector for FleetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.cell.load();
        let mut queued = encoder.encode_descriptor(
            "queue_length",
            "Requests held in a pool's queue",
            None,
            MetricType::Gauge,
        )?;
        for pool in &snapshot.pools {
            let label = [("pool", &*pool.workers.name)];
            ConstGauge::new(pool.queue.controller.len() as f64).encode(queued.encode_family(&label)?)?;
        }
        let mut oldest = encoder.encode_descriptor(
            "queue_oldest_wait_seconds",
            "Wait so far of the request that has waited longest in a pool's queue",
            None,
            MetricType::Gauge,
        )?;
        for pool in &snapshot.pools {
            let label = [("pool", &*pool.workers.name)];
            let wait = pool.queue.controller.oldest_wait().unwrap_or_default();
            ConstGauge::new(wait.as_secs_f64()).encode(oldest.encode_family(&label)?)?;
        }
        let mut known = encoder.encode_descriptor(
            "pd_dialect_known",
            "1 if the handover dialect of a pool's engines is known, 0 while it is undetected",
            None,
            MetricType::Gauge,
        )?;
        for (pool, pd) in snapshot
            .pools
            .iter()
            .filter_map(|pool| Some((pool, pool.pd.as_ref()?)))
        {
            let label = [("pool", &*pool.workers.name)];
            let is_known = u8::from(pd.dialect().is_some());
            ConstGauge::new(f64::from(is_known)).encode(known.encode_family(&label)?)?;
        }
        for (name, help, read) in WORKER_GAUGES {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for member in distinct(&snapshot.pools) {
                let value = read(member);
                // An unknown number would spoil every average and maximum.
                if value.is_nan() {
                    continue;
                }
                let label = [("worker", &*member.worker.spec().name)];
                ConstGauge::new(value).encode(gauge.encode_family(&label)?)?;
            }
        }
        let mut engines = encoder.encode_descriptor(
            "pd_bootstrap_engines",
            "Known engine ids of a prefill worker's bootstrap server",
            None,
            MetricType::Gauge,
        )?;
        for member in distinct(&snapshot.pools) {
            let reported = member.bootstrap.as_ref().and_then(|server| server.engines());
            if let Some(known_engines) = reported {
                let label = [("worker", &*member.worker.spec().name)];
                ConstGauge::new(known_engines as f64).encode(engines.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

/// Returns each worker once, however many pools it is in.
pub(super) fn distinct(pools: &[Arc<PoolState>]) -> Vec<&Member> {
    let mut members: Vec<&Member> = pools.iter().flat_map(|pool| &pool.workers.members).collect();
    members.sort_by_key(|member| member.worker.id());
    members.dedup_by_key(|member| member.worker.id());
    members
}
