//! Collector of the workers' states and their engines' loads: one series for each state, 1 for the present one.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use routing::{EngineReport, Role};

use super::fleet::distinct;
use crate::request::fleet_report::Health;
use crate::request::snapshot::SnapshotCell;

const ROLES: [(Role, &str); 3] = [
    (Role::Mixed, "mixed"),
    (Role::Prefill, "prefill"),
    (Role::Decode, "decode"),
];

/// Gauge of an engine's load: name, help, and the number.
type EngineGauge = (&'static str, &'static str, fn(&EngineReport) -> f64);

const ENGINE_GAUGES: [EngineGauge; 3] = [
    (
        "worker_engine_running_requests",
        "Running requests in the last load report of a worker's engine, those of other senders included",
        |load| load.running,
    ),
    (
        "worker_engine_waiting_requests",
        "Waiting requests in the last load report of a worker's engine",
        |load| load.waiting,
    ),
    (
        "worker_engine_kv_usage_ratio",
        "Used share of the KV cache in the last load report of a worker's engine",
        |load| load.kv_usage,
    ),
];

/// Collector over the workers of the active snapshot.
#[derive(Debug)]
pub(crate) struct StateCollector(pub(crate) Arc<SnapshotCell>);

impl Collector for StateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.load();
        let mut states = encoder.encode_descriptor(
            "worker_state",
            "1 for the state of a worker in a pool, 0 for the others",
            None,
            MetricType::Gauge,
        )?;
        let mut counts = Vec::new();
        for pool in &snapshot.pools {
            let mut of_pool = [[0_u64; Health::ALL.len()]; ROLES.len()];
            for member in &pool.workers.members {
                let present = Health::of(member, member.link.status());
                let spec = member.worker.spec();
                for state in Health::ALL {
                    let labels = [
                        ("worker", &*spec.name),
                        ("pool", &*pool.workers.name),
                        ("state", state.as_str()),
                    ];
                    let is_present = f64::from(u8::from(state == present));
                    ConstGauge::new(is_present).encode(states.encode_family(&labels)?)?;
                }
                of_pool[spec.role as usize][present as usize] += 1;
            }
            counts.push((&pool.workers.name, of_pool));
        }
        let mut workers = encoder.encode_descriptor(
            "workers",
            "Workers of a pool by role and state",
            None,
            MetricType::Gauge,
        )?;
        for (pool, of_pool) in counts {
            for ((_, role), of_role) in ROLES.iter().zip(of_pool) {
                for (state, count) in Health::ALL.iter().zip(of_role) {
                    let labels = [("pool", &**pool), ("role", *role), ("state", state.as_str())];
                    ConstGauge::new(count as f64).encode(workers.encode_family(&labels)?)?;
                }
            }
        }
        for (name, help, read) in ENGINE_GAUGES {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for member in distinct(&snapshot.pools) {
                let reported = member.worker.load().engine();
                let Some(value) = reported
                    .map(|(load, _)| read(&load))
                    .filter(|value| !value.is_nan())
                else {
                    continue;
                };
                let label = [("worker", &*member.worker.spec().name)];
                ConstGauge::new(value).encode(gauge.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_and_state_stands_at_its_discriminant() {
        let mut roles = ROLES.iter().enumerate();
        assert!(roles.all(|(at, (role, _))| *role as usize == at));
        let mut states = Health::ALL.iter().enumerate();
        assert!(states.all(|(at, state)| *state as usize == at));
    }
}
