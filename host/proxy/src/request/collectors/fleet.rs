//! Metrics read off the running state at the moment Prometheus asks.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::fleet::health::HealthStatus;
use crate::fleet::pool::Member;
use crate::request::snapshot::{PoolState, SnapshotCell};

#[derive(Debug)]
pub(crate) struct FleetCollector {
    cell: Arc<SnapshotCell>,
}

/// A gauge of each worker: name, help, and how to read it.
type WorkerGauge = (&'static str, &'static str, fn(&Member) -> f64);

const WORKER_GAUGES: [WorkerGauge; 12] = [
    (
        "worker_requests_in_flight",
        "Requests sent to a worker and not yet answered in full",
        |member| f64::from(member.worker.load().read().requests),
    ),
    (
        "worker_requests_decoding",
        "Of those, the ones past their first token, or past when it should have come where it is not seen",
        |member| f64::from(member.worker.load().read().decoding),
    ),
    (
        "worker_prefill_tokens",
        "Uncached prompt tokens of the other requests in flight",
        |member| member.worker.load().read().prefill_tokens as f64,
    ),
    (
        "worker_ttft_ewma_milliseconds",
        "Moving average of the time to first token; NaN before the first",
        |member| member.worker.load().read().ttft_ewma_ms,
    ),
    (
        "worker_cost_prefill_error_ratio",
        "How far off `cost.prefill-ms` with the wait before it was lately, as a share of what was measured; NaN before it predicts",
        |member| member.worker.load().cost().errors().prefill,
    ),
    (
        "worker_cost_transfer_error_ratio",
        "The same of `cost.transfer-ms`",
        |member| member.worker.load().cost().errors().transfer,
    ),
    (
        "worker_cost_tbt_error_ratio",
        "The same of `cost.tbt-ms`",
        |member| member.worker.load().cost().errors().tbt,
    ),
    ("worker_connections", "Connections open to a worker", |member| {
        member.link.upstream.open_connections() as f64
    }),
    (
        "worker_resting",
        "1 while a worker is kept away from: it failed requests or its probes, or asked to be passed over",
        |member| {
            let stance = member.link.stance();
            f64::from(u8::from(stance.is_out() && stance != HealthStatus::Pending))
        },
    ),
    (
        "worker_pending",
        "1 while a worker was never reached: it gets requests only where no worker in service is left",
        |member| f64::from(u8::from(member.link.stance() == HealthStatus::Pending)),
    ),
    (
        "worker_returning",
        "1 while a worker that came back gets a rising share of the requests",
        |member| f64::from(u8::from(member.link.stance() == HealthStatus::Returning)),
    ),
    (
        "worker_load_age_seconds",
        "Time since a worker's engine told its load; NaN before the first time",
        |member| {
            let told = member.worker.load().engine();
            told.map_or(f64::NAN, |(_, at)| {
                member.link.now_ms().saturating_sub(at) as f64 / 1e3
            })
        },
    ),
];

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
            ConstGauge::new(pool.queue.len() as f64).encode(queued.encode_family(&label)?)?;
        }
        let mut known = encoder.encode_descriptor(
            "pd_dialect_known",
            "Whether it is known how a pool's engines hand prompts over: 0 where it was not detected",
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
                let label = [("worker", &*member.worker.spec().name)];
                ConstGauge::new(read(member)).encode(gauge.encode_family(&label)?)?;
            }
        }
        let mut engines = encoder.encode_descriptor(
            "pd_bootstrap_engines",
            "Engine ids a prefill worker's bootstrap server has told; 0 while none is known",
            None,
            MetricType::Gauge,
        )?;
        for member in distinct(&snapshot.pools) {
            let told = member.bootstrap.as_ref().and_then(|server| server.engines());
            if let Some(engines_told) = told {
                let label = [("worker", &*member.worker.spec().name)];
                ConstGauge::new(engines_told as f64).encode(engines.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

/// Each worker once, however many pools it is in.
fn distinct(pools: &[Arc<PoolState>]) -> Vec<&Member> {
    let mut members: Vec<&Member> = pools.iter().flat_map(|pool| &pool.workers.members).collect();
    members.sort_by_key(|member| member.worker.id());
    members.dedup_by_key(|member| member.worker.id());
    members
}
