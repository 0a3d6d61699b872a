//! Metrics of the edge. Request handling counts the refusals of bodies among them.

use std::sync::Arc;

use inference_api::EndpointClass;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::base::reply::Refusal;

/// Reason why the edge closed a connection or refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// Too many bytes of headers, or too many headers.
    HeadTooLarge,
    UrlTooLong,
    /// Malformed or ambiguous HTTP/1.1.
    Malformed,
    /// Routing loop: the request came from this router.
    Loop,
    /// The first head did not come in time.
    HeadTimeout,
    /// Keep-alive timeout: the next head did not come in time, or none was to come.
    KeepAlive,
    /// Closed while idle to free its slot for another connection.
    MadeRoom,
    /// The address reached its limit of connections.
    AddressFull,
    /// No slot was freed within the wait.
    ConnectionsFull,
    BodyTooLarge,
    BodyTimeout,
    /// Body that had been arriving for longest, dropped for one that waited.
    BodyGaveWay,
    /// No room in the memory for bodies.
    BodiesFull,
    /// The process was short of memory.
    MemoryFull,
    JsonTooDeep,
    TlsFailed,
    TlsTimeout,
    /// The client did not read its response within the request's time.
    Overdue,
    /// The client exceeded its budget of HTTP/2 resets.
    ResetFlood,
    /// Resets, CONTINUATION frames or errors of HTTP/2 beyond their limits.
    Http2Flood,
    /// No reply to an HTTP/2 PING.
    PingTimeout,
}

const TURNED: [(CloseReason, &str); 21] = [
    (CloseReason::HeadTooLarge, "head-too-large"),
    (CloseReason::UrlTooLong, "url-too-long"),
    (CloseReason::Malformed, "malformed"),
    (CloseReason::Loop, "loop"),
    (CloseReason::HeadTimeout, "head-timeout"),
    (CloseReason::KeepAlive, "keep-alive-timeout"),
    (CloseReason::MadeRoom, "evicted"),
    (CloseReason::AddressFull, "address-full"),
    (CloseReason::ConnectionsFull, "connections-full"),
    (CloseReason::BodyTooLarge, "body-too-large"),
    (CloseReason::BodyTimeout, "body-timeout"),
    (CloseReason::BodyGaveWay, "body-evicted"),
    (CloseReason::BodiesFull, "bodies-full"),
    (CloseReason::MemoryFull, "memory-full"),
    (CloseReason::JsonTooDeep, "json-too-deep"),
    (CloseReason::TlsFailed, "tls-failed"),
    (CloseReason::TlsTimeout, "tls-timeout"),
    (CloseReason::Overdue, "overdue"),
    (CloseReason::ResetFlood, "reset-flood"),
    (CloseReason::Http2Flood, "http2-flood"),
    (CloseReason::PingTimeout, "ping-timeout"),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PagesReasonLabel {
    listener: &'static str,
    reason: &'static str,
}

/// Protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

const PROTOCOLS: [(Protocol, &str); 2] = [(Protocol::Http1, "http/1.1"), (Protocol::Http2, "h2")];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabel {
    listener: &'static str,
    protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: &'static str,
}

/// Gauges of the connections of clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionGauges {
    pub(crate) open: Gauge,
    pub(crate) limit: Gauge,
}

/// The edge's counters. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct EdgeMetrics {
    family: Family<ReasonLabel, Counter>,
    of_pages: Family<PagesReasonLabel, Counter>,
    turned: Arc<[Counter; TURNED.len()]>,
    connections: Family<ProtocolLabel, Counter>,
    /// Connections, indexed by the discriminant of the protocol.
    connected: Arc<[Counter; PROTOCOLS.len()]>,
    /// Requests over HTTP/2.
    http2_requests: Counter,
    /// TLS handshakes completed.
    handshakes: Counter,
    pub(crate) slots: ConnectionGauges,
    endpoints: Family<EndpointLabel, Counter>,
    /// Requests, indexed by the discriminant of the class.
    came_for: Arc<[Counter; EndpointClass::ALL.len()]>,
}

impl Default for EdgeMetrics {
    fn default() -> Self {
        let family = Family::<ReasonLabel, Counter>::default();
        let turned = TURNED.map(|(_, reason)| family.get_or_create_owned(&ReasonLabel { reason }));
        let endpoints = Family::<EndpointLabel, Counter>::default();
        let came_for = EndpointClass::ALL
            .map(|(_, endpoint)| endpoints.get_or_create_owned(&EndpointLabel { endpoint }));
        let connections = Family::<ProtocolLabel, Counter>::default();
        Self {
            connected: connected(&connections, "clients"),
            connections,
            http2_requests: Counter::default(),
            family,
            of_pages: Family::default(),
            turned: Arc::new(turned),
            handshakes: Counter::default(),
            came_for: Arc::new(came_for),
            endpoints,
            slots: ConnectionGauges::default(),
        }
    }
}

impl EdgeMetrics {
    /// Returns the metrics of the listener of pages of that name: its connections are counted apart from those of
    /// clients.
    pub(crate) fn pages(&self, listener: &'static str) -> Self {
        let turned = TURNED.map(|(_, reason)| {
            let label = PagesReasonLabel { listener, reason };
            self.of_pages.get_or_create_owned(&label)
        });
        Self {
            turned: Arc::new(turned),
            connected: connected(&self.connections, listener),
            handshakes: Counter::default(),
            ..self.clone()
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "edge_turned_away",
            "Rejected connections and requests of clients, by reason",
            self.family.clone(),
        );
        registry.register(
            "edge_connections",
            "Accepted connections, by listener and protocol",
            self.connections.clone(),
        );
        registry.register(
            "edge_http2_requests",
            "Requests over HTTP/2, on any listener",
            self.http2_requests.clone(),
        );
        registry.register(
            "pages_turned_away",
            "Rejected connections and requests of the admin listener and the indexer, by reason",
            self.of_pages.clone(),
        );
        registry.register(
            "edge_tls_handshakes",
            "TLS handshakes of clients",
            self.handshakes.clone(),
        );
        registry.register(
            "endpoint_requests",
            "Requests to endpoints of workers, by class of the endpoint",
            self.endpoints.clone(),
        );
        registry.register(
            "client_connections",
            "Open connections of clients",
            self.slots.open.clone(),
        );
        registry.register(
            "client_connections_limit",
            "Limit of client connections; further ones wait",
            self.slots.limit.clone(),
        );
    }

    /// Counts a request to an endpoint that workers serve.
    pub(crate) fn came_for(&self, class: EndpointClass) {
        self.came_for[class as usize].inc();
    }

    pub(crate) fn turned(&self, why: CloseReason) {
        self.turned[why as usize].inc();
    }

    /// Counts a connection.
    pub(crate) fn connected(&self, protocol: Protocol) {
        self.connected[protocol as usize].inc();
    }

    /// Counts a request over HTTP/2.
    pub(crate) fn came_over_http2(&self) {
        self.http2_requests.inc();
    }

    pub(crate) fn shook_hands(&self) {
        self.handshakes.inc();
    }

    /// Counts a refusal of the edge. Ignores all others.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let why = match refusal {
            Refusal::UrlTooLong { .. } => CloseReason::UrlTooLong,
            Refusal::HeadersTooLarge { .. } | Refusal::TooManyHeaders { .. } => CloseReason::HeadTooLarge,
            Refusal::TransferCoding | Refusal::Host => CloseReason::Malformed,
            Refusal::Loop => CloseReason::Loop,
            Refusal::BodyTooLarge { .. } => CloseReason::BodyTooLarge,
            Refusal::BodyTimeout => CloseReason::BodyTimeout,
            Refusal::BodyGaveWay => CloseReason::BodyGaveWay,
            Refusal::BodiesFull => CloseReason::BodiesFull,
            Refusal::MemoryFull => CloseReason::MemoryFull,
            Refusal::AddressFull => CloseReason::AddressFull,
            Refusal::ConnectionsFull => CloseReason::ConnectionsFull,
            Refusal::BodyTooDeep { .. } => CloseReason::JsonTooDeep,
            _ => return,
        };
        self.turned(why);
    }
}

fn connected(
    connections: &Family<ProtocolLabel, Counter>,
    listener: &'static str,
) -> Arc<[Counter; PROTOCOLS.len()]> {
    Arc::new(
        PROTOCOLS.map(|(_, protocol)| connections.get_or_create_owned(&ProtocolLabel { listener, protocol })),
    )
}
