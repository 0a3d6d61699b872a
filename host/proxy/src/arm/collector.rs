//! What is told of the arms of the routes in force at the moment Prometheus asks; of those that are gone, nothing.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::arm::trial::{Arm, BUCKETS, Trial};
use crate::snapshot::SnapshotCell;

/// Reads the trials of the snapshot in force.
#[derive(Debug)]
pub(crate) struct TrialCollector {
    cell: Arc<SnapshotCell>,
}

/// A gauge of each arm: name, help, which arms have it, and how to read it.
type ArmGauge = (&'static str, &'static str, usize, fn(&Arm) -> f64);

const GAUGES: [ArmGauge; 2] = [
    (
        "arm_share",
        "Share of the sessions that an arm is to have",
        0,
        |arm| f64::from(arm.share) / f64::from(BUCKETS),
    ),
    (
        "canary_stopped",
        "1 while a canary is stopped for being worse than its control, which has its share meanwhile",
        1,
        |arm| f64::from(u8::from(arm.is_stopped())),
    ),
];

impl TrialCollector {
    pub(crate) fn new(cell: Arc<SnapshotCell>) -> Self {
        Self { cell }
    }
}

impl Collector for TrialCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.cell.load();
        let mut trials: Vec<&Trial> = Vec::new();
        for trial in snapshot.routes.iter().filter_map(|route| route.trial()) {
            // Routes that take the same from the same pool: only the first of them takes anything.
            let is_known = |known: &&Trial| known.pool == trial.pool && known.route == trial.route;
            if !trials.iter().any(is_known) {
                trials.push(trial);
            }
        }
        for (name, help, from, read) in GAUGES {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for trial in &trials {
                for arm in trial.arms.iter().skip(from) {
                    let label = [
                        ("pool", &*trial.pool),
                        ("route", &*trial.route),
                        ("policy", &*arm.policy),
                    ];
                    ConstGauge::new(read(arm)).encode(gauge.encode_family(&label)?)?;
                }
            }
        }
        Ok(())
    }
}
