//! What of the edge is read off the configuration in force when Prometheus asks.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::memory::MemoryReport;
use crate::request::snapshot::SnapshotCell;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// The bodies of requests, the process' memory, and the certificates that are shown.
#[derive(Debug)]
pub(crate) struct EdgeCollector(pub(crate) Arc<SnapshotCell>);

impl Collector for EdgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let edge = self.0.edge();
        let bodies = edge.bodies.report();
        memory(&mut encoder, &edge.memory.report())?;
        let gauges = [
            (
                "body_bytes",
                "Bytes of request bodies that are held",
                bodies.bytes,
            ),
            (
                "body_bytes_limit",
                "Most bytes of request bodies that are held at a time",
                bodies.limit,
            ),
            (
                "unfinished_bodies",
                "Request bodies that have begun to arrive and are not complete",
                bodies.unfinished,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(gauge)?;
        }
        let now = SystemTime::now();
        let ends = edge.listeners.named();
        let ends = ends.filter_map(|(listener, tls)| Some((listener, tls.not_after()?)));
        let ends: Vec<_> = ends.collect();
        if ends.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "edge_tls_certificate_days_left",
            "Days until the certificate that a listener shows is no longer good",
            None,
            MetricType::Gauge,
        )?;
        for (listener, end) in ends {
            let gauge = ConstGauge::new(days(end, now));
            gauge.encode(family.encode_family(&[("listener", listener)])?)?;
        }
        Ok(())
    }
}

/// What the process has of its memory; nothing is said of what is not known.
fn memory(encoder: &mut DescriptorEncoder<'_>, report: &MemoryReport) -> fmt::Result {
    let gauges = [
        (
            "memory_resident_bytes",
            "Resident memory of the process",
            report.resident.map(|bytes| bytes as f64),
        ),
        (
            "memory_limit_bytes",
            "Memory that the process may have; absent without a limit",
            report.limit.map(|bytes| bytes as f64),
        ),
        (
            "memory_stage",
            "What is shed for want of memory: 0 nothing, 1 caches and idle connections, 2 requests, 3 bodies that are arriving",
            Some(f64::from(report.stage as u8)),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
    }
    let changes = encoder.encode_descriptor(
        "memory_stage_changes",
        "Changes of `memory_stage`",
        None,
        MetricType::Counter,
    )?;
    ConstCounter::new(report.changes).encode(changes)
}

/// Below 0 afterwards.
fn days(end: SystemTime, now: SystemTime) -> f64 {
    let seconds = match end.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    };
    seconds / SECONDS_PER_DAY
}
