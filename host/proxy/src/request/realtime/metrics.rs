//! Metrics of tunnels.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Open tunnels and their bytes. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct TunnelMetrics {
    open: Gauge,
    bytes: Family<DirectionLabel, Counter>,
    /// Bytes from clients to workers.
    pub(super) sent: Counter,
    /// Bytes from workers to clients.
    pub(super) received: Counter,
}

/// Counts one tunnel as open until dropped.
#[derive(Debug)]
pub(super) struct OpenTunnel(Gauge);

impl Default for TunnelMetrics {
    fn default() -> Self {
        let bytes = Family::<DirectionLabel, Counter>::default();
        let counter = |direction| bytes.get_or_create_owned(&DirectionLabel { direction });
        Self {
            open: Gauge::default(),
            sent: counter("to-worker"),
            received: counter("to-client"),
            bytes,
        }
    }
}

impl TunnelMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "realtime_connections",
            "Open WebSockets between clients and workers",
            self.open.clone(),
        );
        registry.register(
            "realtime_bytes",
            "Bytes relayed over WebSockets, by direction",
            self.bytes.clone(),
        );
    }

    /// Counts a tunnel as open.
    pub(super) fn opened(&self) -> OpenTunnel {
        self.open.inc();
        OpenTunnel(self.open.clone())
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.dec();
    }
}
