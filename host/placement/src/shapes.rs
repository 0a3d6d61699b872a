//! Shapes in which a request may be placed, and the health of a worker with regard to it.

/// The ways in which a request may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedShapes {
    /// Placement on one mixed worker.
    pub mixed: bool,
    /// Placement on a prefill and a decode worker.
    pub pair: bool,
    /// Placement on one decode worker.
    pub alone: bool,
}

/// Health of a worker with regard to one request. The order is that of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligibility {
    /// In service.
    Healthy,
    /// Back in service for a short time (slow start). It gets this request only where no worker of its role is healthy.
    Returning,
    /// Out of service: pending, ejected, busy or unhealthy.
    OutOfService,
}
