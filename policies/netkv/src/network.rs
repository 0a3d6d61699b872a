//! Network cost oracle: the tier of a pair of workers, and the time of a transfer in each tier.

use conductor_policy_sdk::{Column, Params, Plan, Row};

/// Tiers: the same node, rack, pod, and beyond.
pub(crate) const TIERS: usize = 4;

/// Names of the tiers' parameters, with the defaults in gigabits a second.
const BANDWIDTHS: [(&str, f64); TIERS] = [
    ("node-gbps", 3_600.0),
    ("rack-gbps", 400.0),
    ("pod-gbps", 200.0),
    ("far-gbps", 100.0),
];
/// Names of the parameters with the shares of the bandwidth that other traffic has.
const CONGESTIONS: [&str; TIERS] = [
    "node-congestion",
    "rack-congestion",
    "pod-congestion",
    "far-congestion",
];
/// Names of the parameters with the base latencies, with the defaults in microseconds.
const LATENCIES: [(&str, f64); TIERS] = [
    ("node-latency-us", 2.0),
    ("rack-latency-us", 5.0),
    ("pod-latency-us", 10.0),
    ("far-latency-us", 20.0),
];

/// Distances and bandwidths, as the operator knows them.
#[derive(Debug)]
pub(crate) struct Network {
    /// Labels whose values are equal within a node, a rack and a pod.
    labels: [Column; TIERS - 1],
    tiers: [Tier; TIERS],
    /// Bytes of the cache of one token.
    token_bytes: f64,
}

/// A distance.
#[derive(Debug, Clone, Copy, Default)]
struct Tier {
    bytes_per_ms: f64,
    latency_ms: f64,
}

impl Network {
    pub(crate) fn configure(params: &mut Params, plan: &mut Plan) -> Self {
        let node = params
            .about("Label key with equal values on workers of one node.")
            .text("node-label", "node");
        let rack = params
            .about("Label key with equal values on workers of one rack.")
            .text("rack-label", "rack");
        let pod = params
            .about("Label key with equal values on workers of one pod of racks.")
            .text("pod-label", "pod");
        let mut tiers = [Tier::default(); TIERS];
        for (at, tier) in tiers.iter_mut().enumerate() {
            let (name, default) = BANDWIDTHS[at];
            let gbps = params
                .unit("gigabits a second")
                .about("Bandwidth of a worker over this distance.")
                .number(name, default, 0.001..=1_000_000.0);
            let congestion = params
                .unit("share")
                .about("Share of this bandwidth that other traffic has.")
                .number(CONGESTIONS[at], 0.0, 0.0..=0.99);
            let (name, default) = LATENCIES[at];
            let latency_us = params
                .unit("microseconds")
                .about("Latency of a transfer over this distance.")
                .number(name, default, 0.0..=10_000_000.0);
            *tier = Tier {
                // A gigabit a second is 125,000 bytes a millisecond.
                bytes_per_ms: gbps * 125_000.0 * (1.0 - congestion),
                latency_ms: latency_us / 1e3,
            };
        }
        Self {
            labels: [&node, &rack, &pod].map(|key| plan.label(key)),
            tiers,
            token_bytes: params
                .unit("bytes")
                .about(
                    "Bytes of the cache of one token on one link; with tensor parallelism each rank's share.",
                )
                .number("token-bytes", 327_680.0, 1.0..=1e9),
        }
    }

    /// Returns the tier of two workers. A label that one of them lacks is not shared.
    pub(crate) fn tier(&self, from: &Row<'_>, to: &Row<'_>) -> usize {
        let is_shared = |label: &Column| from.get(*label) == to.get(*label);
        self.labels.iter().position(is_shared).unwrap_or(TIERS - 1)
    }

    /// Returns the time to send so many tokens over a tier, which is shared with so many other transfers.
    pub(crate) fn transfer_ms(&self, tier: usize, tokens: f64, flows: f64) -> f64 {
        let Tier {
            bytes_per_ms,
            latency_ms,
        } = self.tiers[tier];
        tokens * self.token_bytes * (1.0 + flows) / bytes_per_ms + latency_ms
    }
}
