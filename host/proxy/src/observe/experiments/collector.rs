//! Gauges of arms, encoded at each scrape from the trials that are active then, so removed arms disappear.

use std::fmt;

use experiment::ARM_SHARES;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::trial::{Arm, Trial};

/// Gauge per arm.
struct ArmGauge {
    name: &'static str,
    help: &'static str,
    /// First arm that has it.
    first_arm: usize,
    read: fn(&Arm) -> f64,
}

const GAUGES: [ArmGauge; 2] = [
    ArmGauge {
        name: "arm_share",
        help: "Configured share of an arm's sessions",
        first_arm: 0,
        read: |arm| f64::from(arm.share) / f64::from(ARM_SHARES),
    },
    ArmGauge {
        name: "canary_stopped",
        help: "1 while a canary is stopped; its control has its share meanwhile",
        first_arm: 1,
        read: |arm| f64::from(u8::from(arm.is_stopped())),
    },
];

/// Encodes the gauges of all trials. Of trials with the same pool and title only the first counts: the others receive
/// no requests.
pub(crate) fn encode_trials<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    all: impl Iterator<Item = &'a Trial>,
) -> fmt::Result {
    let mut trials: Vec<&Trial> = Vec::new();
    for trial in all {
        let is_known = |known: &&Trial| known.pool == trial.pool && known.route == trial.route;
        if !trials.iter().any(is_known) {
            trials.push(trial);
        }
    }
    for arm_gauge in GAUGES {
        let (name, help) = (arm_gauge.name, arm_gauge.help);
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for trial in &trials {
            for arm in trial.arms.iter().skip(arm_gauge.first_arm) {
                let label = [
                    ("pool", &*trial.pool),
                    ("route", &*trial.route),
                    ("policy", &*arm.policy),
                ];
                ConstGauge::new((arm_gauge.read)(arm)).encode(gauge.encode_family(&label)?)?;
            }
        }
    }
    Ok(())
}
