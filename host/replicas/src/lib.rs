//! State shared by the routers of one fleet, as values and pure functions.
//!
//! Each router publishes absolute totals of its own requests at each worker ([`LoadPublisher`]). The others add them
//! up ([`Peers`]) into the loads that policies read (`routing::OtherLoads`). A lost message heals with the next one,
//! because nothing is counted by events. Ages come from the senders' monotonic clocks, so wall clocks play no part.
//!
//! Nothing here reads a clock, opens a socket or makes a thread. The design is in `host/adr/0033-replicas.md`.

mod bus;
mod cost_message;
mod cost_publisher;
mod delay;
mod gauges;
mod hello;
mod id;
mod load_message;
mod member;
mod peer;
mod peers;
mod publisher;
mod transfer;
mod usage;
mod wire;

pub use bus::{Bus, BusEvent, DirectBus, DirectEvent, FleetSubject, SubjectKind};
pub use cost_message::{CostMessage, MOST_COST_SAMPLES, WorkerSamples};
pub use cost_publisher::CostPublisher;
pub use delay::DelayEstimate;
pub use gauges::{PoolGauges, WorkerGauges};
pub use hello::{FillState, HelloError, HelloMessage, IndexFill, RouterState};
pub use id::{FeedKey, PoolKey, RouterId, WorkerKey};
pub use load_message::{GaugeRows, LoadMessage, MOST_POOLS, MOST_WORKERS, WorkerRow};
pub use member::{MemberReport, PeerCounts};
pub use peers::{Peers, PeersSpec, SharedWorker};
pub use publisher::LoadPublisher;
pub use transfer::{
    ContentsPosition, FeedContents, FleetHashes, MOST_CONTENTS_BYTES, MOST_RANKS, MOST_TRANSFERS, PART_BYTES,
    ReceivedPart, RefusalReason, TransferError, TransferId, TransferMessage, TransferPart, TransferReceiver,
    TransferRequest, TransferServer,
};
pub use usage::{
    MOST_USAGE_ROWS, SuccessionSpec, UsageChange, UsageChanges, UsageKey, UsageMessage, UsagePeers,
    UsagePublisher, UsageReading, UsageRow, UsageValue,
};
pub use wire::{MOST_MESSAGE_BYTES, WireError};
