//! Specification of the exchange between simulated routers.

/// Shared state of the routers, and the bus between them.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingSpec {
    /// Shortest time between two messages of a router, in microseconds.
    pub every_us: u64,
    /// Time from a message's sending to its arrival, in microseconds.
    pub lag_us: u64,
    /// Share of the messages that each receiver loses, 0 to 1.
    pub loss: f64,
    /// Set if held requests are shared as well as loads.
    pub queue: bool,
    /// Set if samples of the workers' costs are shared.
    pub costs: bool,
    /// Set if each router expects the prompts of the others where and when those do, without a delay: at a pair's
    /// decode worker once its prompt is computed. No server does that: it shows the highest gain that it could have.
    pub expected: bool,
    /// Times at which routers are cut off from the bus.
    pub cuts: Vec<BusCut>,
}

/// Time at which a router is cut off from the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusCut {
    /// The router; `None` for all.
    pub router: Option<usize>,
    /// Begin, in microseconds.
    pub from_us: u64,
    /// End, in microseconds.
    pub until_us: u64,
}
