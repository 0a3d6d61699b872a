//! Collector of the edge's state at scrape time: bodies, memory, certificates.

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
            ("body_bytes", "Memory of request bodies", bodies.bytes),
            (
                "body_bytes_limit",
                "Limit of the memory of request bodies",
                bodies.limit,
            ),
            (
                "unfinished_bodies",
                "Request bodies in transfer",
                bodies.unfinished,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(gauge)?;
        }
        let ends = edge.listeners.named();
        let ends = ends.filter_map(|(listener, tls)| Some((listener, tls.not_after()?)));
        let ends: Vec<_> = ends.collect();
        if ends.is_empty() {
            return Ok(());
        }
        certificates(&mut encoder, &ends)
    }
}

/// Name, help and value of a family of certificates.
type CertificateGauge = (&'static str, &'static str, fn(SystemTime) -> f64);

const CERTIFICATE_GAUGES: [CertificateGauge; 2] = [
    (
        "edge_tls_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate of a listener expires",
        |end| seconds(end, SystemTime::UNIX_EPOCH),
    ),
    (
        "edge_tls_certificate_days_left",
        "Deprecated: use conductor_edge_tls_certificate_expiry_timestamp_seconds",
        |end| seconds(end, SystemTime::now()) / SECONDS_PER_DAY,
    ),
];

/// Writes the expiry of each listener's certificate.
fn certificates(encoder: &mut DescriptorEncoder<'_>, ends: &[(&'static str, SystemTime)]) -> fmt::Result {
    for (name, help, read) in CERTIFICATE_GAUGES {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for &(listener, end) in ends {
            let gauge = ConstGauge::new(read(end));
            gauge.encode(family.encode_family(&[("listener", listener)])?)?;
        }
    }
    Ok(())
}

/// Writes the memory of the process; unknown values are absent.
fn memory(encoder: &mut DescriptorEncoder<'_>, report: &MemoryReport) -> fmt::Result {
    let gauges = [
        (
            "memory_resident_bytes",
            "Resident memory of the process",
            report.resident.map(|bytes| bytes as f64),
        ),
        (
            "memory_limit_bytes",
            "Memory limit of the process; absent without a limit",
            report.limit.map(|bytes| bytes as f64),
        ),
        (
            "memory_stage",
            "Shed load: 0 none, 1 caches and idle connections, 2 requests, 3 bodies in transfer",
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

/// Returns the seconds from `start` to `end`; negative if `end` is earlier.
fn seconds(end: SystemTime, start: SystemTime) -> f64 {
    match end.duration_since(start) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    }
}
