//! Metrics of the exchange.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use replicas::{PeerCounts, Peers};

/// Metrics of the exchange.
#[derive(Debug, Default)]
pub struct ExchangeMetrics {
    connected: Gauge,
    live: Gauge,
    silent: Gauge,
    divisor: Gauge,
    delay: Gauge<f64, AtomicU64>,
    sent: SentMetrics,
    received: ReceivedMetrics,
    /// Counters as reported last.
    seen: std::sync::Mutex<PeerCounts>,
}

#[derive(Debug, Default)]
struct SentMetrics {
    messages: Counter,
    bytes: Counter,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct ReceivedMetrics {
    bytes: Counter,
    applied: Counter,
    missing: Counter,
    refused: Counter,
    expired: Counter,
}

impl ExchangeMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
        gauge(
            "conductor_replicas_connected",
            "1 while the bus between routers is connected",
            &metrics.connected,
        );
        gauge(
            "conductor_replicas_live",
            "Other routers whose messages arrive",
            &metrics.live,
        );
        gauge(
            "conductor_replicas_silent",
            "Other routers whose loads fade",
            &metrics.silent,
        );
        gauge(
            "conductor_replicas_limit_divisor",
            "Routers by which this router divides limits, because it has lost the others; 1 if it has not",
            &metrics.divisor,
        );
        registry.register(
            "conductor_replicas_delay_seconds",
            "Longest delay of another router's newest message",
            metrics.delay.clone(),
        );
        let mut counter =
            |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter(
            "conductor_replicas_sent_messages",
            "Messages that were sent to other routers",
            &metrics.sent.messages,
        );
        counter(
            "conductor_replicas_sent_bytes",
            "Bytes that were sent to other routers",
            &metrics.sent.bytes,
        );
        counter(
            "conductor_replicas_dropped_messages",
            "Messages that were not sent because the bus was away or had no room",
            &metrics.sent.dropped,
        );
        counter(
            "conductor_replicas_received_bytes",
            "Bytes that were received from other routers",
            &metrics.received.bytes,
        );
        counter(
            "conductor_replicas_received_messages",
            "Messages of other routers that were applied",
            &metrics.received.applied,
        );
        counter(
            "conductor_replicas_missing_messages",
            "Messages of other routers that were lost or came late",
            &metrics.received.missing,
        );
        counter(
            "conductor_replicas_refused_messages",
            "Messages that could not be read, that name another sender, or of too many routers",
            &metrics.received.refused,
        );
        counter(
            "conductor_replicas_expired",
            "Other routers that were removed after their silence",
            &metrics.received.expired,
        );
        metrics
    }

    pub(crate) fn connected(&self, connected: bool) {
        self.connected.set(connected.into());
    }

    pub(crate) fn divided(&self, routers: NonZeroU32) {
        self.divisor.set(routers.get().into());
    }

    pub(crate) fn published(&self, bytes: usize, taken: bool) {
        if taken {
            self.sent.messages.inc();
            self.sent.bytes.inc_by(bytes as u64);
        } else {
            self.sent.dropped.inc();
        }
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received.bytes.inc_by(bytes as u64);
    }

    pub(crate) fn look(&self, peers: &Peers, now_ms: u64) {
        let (counts, members) = (peers.counts(), peers.members(now_ms));
        let mut seen = self
            .seen
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.received.applied.inc_by(counts.applied - seen.applied);
        self.received.missing.inc_by(counts.missing - seen.missing);
        self.received.refused.inc_by(counts.refused - seen.refused);
        self.received.expired.inc_by(counts.expired - seen.expired);
        *seen = counts;
        let silent = members.iter().filter(|member| member.is_silent).count();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.silent.set(count(silent));
        self.live.set(count(members.len() - silent));
        let longest = members.iter().map(|member| member.delay_ms).max().unwrap_or(0);
        self.delay.set(longest as f64 / 1e3);
    }
}
