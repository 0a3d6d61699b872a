//! What of the edge is read off the configuration in force when Prometheus asks.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::snapshot::SnapshotCell;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// The bodies of requests, and the certificates that are shown.
#[derive(Debug)]
pub(crate) struct EdgeCollector(pub(crate) Arc<SnapshotCell>);

impl Collector for EdgeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let edge = self.0.edge();
        let bodies = edge.bodies.report();
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
        let ends = edge.tls.named();
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

/// Below 0 afterwards.
fn days(end: SystemTime, now: SystemTime) -> f64 {
    let seconds = match end.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    };
    seconds / SECONDS_PER_DAY
}
