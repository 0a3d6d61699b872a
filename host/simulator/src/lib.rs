//! Simulator: policies place the requests of a trace on a model of a cluster, in virtual time.
//!
//! A run is a function of its trace, cluster, policy and seed. Nothing here depends on a policy's implementation, reads
//! a clock or a file, or makes a thread: `conductor simulate` does. Why it is built this way:
//! `host/adr/0013-simulator.md`.

mod engine;
mod outcome;
mod profile;
mod request;
mod router;
mod run;
mod spec;
mod trace;

pub use outcome::{
    AttainmentPoint, Breakdown, End, Fairness, GroupTimes, LatencyTargets, LengthGroup, Outcome, PoolLoads,
    Quantiles, RefusalReason, RefusalShares, RequestOutcome, Sample, Summary, Swing, TurnGroup, WorkerUse,
};
pub use profile::{
    Fit, FitFrom, FitQuality, FittedProfile, MockerProfile, PaperProfile, Profile, ProfileError, StepWork,
    TooFew,
};
pub use request::{AfterAnswer, Request, Trace};
pub use router::{
    BusCut, CostSource, Knowledge, Policies, QueueSpec, RouterBalance, RouterCounts, RouterDeath, RouterSpec,
    SharingSpec, UNKNOWN_NUMBERS,
};
#[doc(hidden)]
pub use router::{ProbedRequest, RouterProbe};
pub use run::{Failure, RunSpec, run};
pub use spec::{
    CacheTiming, ClusterSpec, FetchRule, QueueOrder, RESEARCH_BLOCKS, Transfers, WorkerIdentity, WorkerSpec,
};
pub use trace::{
    Lengths, LineError, Mix, MixOptions, RecordedRequest, Recording, TraceError, TraceFacts, UnknownMix,
};
