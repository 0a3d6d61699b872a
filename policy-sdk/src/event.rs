//! Lifecycle events of requests and workers, for policies that learn from them.

use crate::call::WorkerId;
use crate::host::Host;

/// Kind of a lifecycle event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A request, or one leg of it, was sent to a worker. Number: tokens of its prompt.
    RequestDispatched,
    /// The first token arrived. Number: milliseconds since the dispatch.
    RequestFirstToken,
    /// The response was read to its end. Number: milliseconds since the dispatch.
    RequestFinished,
    /// The worker did not answer, answered with 429 or 5xx, or closed the connection early. Number:
    /// milliseconds since the dispatch.
    RequestFailed,
    /// The client disconnected before the response ended. Number: milliseconds since the dispatch.
    RequestAbandoned,
    /// A worker was added. Number: its role, as in the column `worker.role`.
    WorkerJoined,
    /// A worker was removed.
    WorkerLeft,
    /// The role of a worker changed. Number: the new role, as in the column `worker.role`.
    WorkerRole,
}

impl EventKind {
    /// All kinds, in the order of the contract.
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

    /// Returns the kind's name in the contract.
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

/// One lifecycle event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Time of the event, on the clock of [`Host::now_us`].
    pub at_us: u64,
    /// Sequence number of the request; 0 for an event of a worker alone.
    pub seq: u64,
    /// Session of the request.
    pub session: Option<u64>,
    /// Worker of the event. [`Host::describe`] knows all workers of a batch.
    pub worker: WorkerId,
    /// Number that the kind defines; NaN if it defines none.
    pub number: f64,
}

/// Listener for lifecycle events, implemented by a policy or scorer. Exported by `export_policy!(T, events)`
/// or `export_scorer!(T, events)`.
///
/// A separate instance receives the events, outside the request path. Decisions see its results through the
/// shared state ([`Host::add_state`], [`Host::set_state`]). No request is current in this call:
/// [`Host::header`] and similar functions return nothing.
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
///             // The state is full: the maximum number of workers is counted already.
///             let _ = host.add_state(&["failed-", &event.worker.to_string()].concat(), 1);
///         }
///     }
/// }
/// ```
pub trait Events {
    /// Kinds of events to receive.
    const KINDS: &'static [EventKind];

    /// Handles a batch of at most 256 events of these kinds, in the order in which they happened. The oldest
    /// is about 100 ms old.
    fn handle(&self, batch: &[Event], host: &impl Host);
}

/// Periodic task of a policy or scorer. Exported by `export_policy!(T, tick)` or `export_scorer!(T, tick)`.
///
/// The instance that handles [`Events`] runs it, outside the request path.
pub trait Tick {
    /// Runs the task and returns the milliseconds until the next run: 100 to 3,600,000. The first run follows
    /// the activation of the version.
    fn tick(&self, host: &impl Host) -> u32;
}
