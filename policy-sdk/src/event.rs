//! What became of requests and workers, for policies that learn from it.

use crate::call::WorkerId;
use crate::host::Host;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A request, or a leg of one, went out to a worker. The number: tokens of its prompt.
    RequestDispatched,
    /// Its first token came. The number: milliseconds since the dispatch.
    RequestFirstToken,
    /// Its answer was read to the end. The number: milliseconds since the dispatch.
    RequestFinished,
    /// The worker did not answer, refused for its own trouble (429, 5xx), or broke off. The number: milliseconds since the
    /// dispatch.
    RequestFailed,
    /// Nobody waits for its answer any more: the client left. The number: milliseconds since the dispatch.
    RequestAbandoned,
    /// A worker is there. The number: its role, as in the column `worker.role`.
    WorkerJoined,
    /// A worker is gone.
    WorkerLeft,
    /// A worker does something else from now on. The number: as in the column `worker.role`.
    WorkerRole,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::RequestDispatched,
        Self::RequestFirstToken,
        Self::RequestFinished,
        Self::RequestFailed,
        Self::RequestAbandoned,
        Self::WorkerJoined,
        Self::WorkerLeft,
        Self::WorkerRole,
    ];

    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestDispatched => "request.dispatched",
            Self::RequestFirstToken => "request.first-token",
            Self::RequestFinished => "request.finished",
            Self::RequestFailed => "request.failed",
            Self::RequestAbandoned => "request.abandoned",
            Self::WorkerJoined => "worker.joined",
            Self::WorkerLeft => "worker.left",
            Self::WorkerRole => "worker.role",
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// When, on the clock of [`Host::now_us`].
    pub at_us: u64,
    /// The number of the request; 0 where a worker is all it is about.
    pub seq: u64,
    /// The request's session.
    pub session: Option<u64>,
    /// Where. [`Host::describe`] knows the workers of a batch.
    pub worker: WorkerId,
    /// What the kind says it is; NaN where it says nothing.
    pub number: f64,
}

/// A policy or scorer that is told what became of requests and workers: exported by `export_policy!(T, events)` or
/// `export_scorer!(T, events)`.
///
/// The events are told to an instance of their own, off the way of requests: what decisions shall see of them goes through the
/// shared state ([`Host::add_state`], [`Host::set_state`]). No request is at hand here: [`Host::header`] and the like answer
/// nothing.
///
/// ```
/// use conductor_policy_sdk::{Event, EventKind, Events, Host};
/// # use conductor_policy_sdk::{Call, Params, Plan, Policy, Verdict};
/// # struct Wary;
/// # impl Policy for Wary {
/// #     const NAME: &'static str = "wary";
/// #     const VERSION: &'static str = "1";
/// #     fn configure(_: &mut Params, _: &mut Plan) -> Self { Self }
/// #     fn schedule(&self, _: &Call<'_>, _: &impl Host) -> Verdict { Verdict::Pass }
/// # }
/// impl Events for Wary {
///     const KINDS: &'static [EventKind] = &[EventKind::RequestFailed];
///
///     fn handle(&self, batch: &[Event], host: &impl Host) {
///         for event in batch {
///             // Full: as many workers are counted already as there may be.
///             let _ = host.add_state(&["failed-", &event.worker.to_string()].concat(), 1);
///         }
///     }
/// }
/// ```
pub trait Events {
    /// What it wants to be told.
    const KINDS: &'static [EventKind];

    /// Some events of these kinds, in the order in which they happened: at most 256, the oldest some 100 ms old.
    fn handle(&self, batch: &[Event], host: &impl Host);
}

/// A policy or scorer that works by the clock: exported by `export_policy!(T, tick)` or `export_scorer!(T, tick)`. Like [`Events`],
/// and by the same instance, off the way of requests.
pub trait Tick {
    /// Answers after how many milliseconds it wants to be called again: 100 to 3,600,000. First called when the version is put
    /// in force.
    fn tick(&self, host: &impl Host) -> u32;
}
