//! The vocabulary of routing and the rules that check a decision.
//!
//! Everything here is a value or a pure function: no clock, no sockets, no serialisation, no runtime. The
//! adapters (proxy, policy-runtime, kv-feed, config) meet in these types and nowhere else.

mod admission;
mod block;
mod check;
mod circuit;
mod cost;
mod decision;
mod dialect;
mod event;
mod fallback;
mod fault;
mod feature;
mod feature_name;
mod fleet;
mod hex;
mod id;
mod load;
mod number_map;
mod origin;
mod pipeline;
mod policy;
mod pool;
mod random;
mod store;
mod transcript;
mod versions;
mod worker;

pub use admission::{
    Budget, BudgetLimits, BudgetUse, CapacityEvent, ClassCounts, DeferredEvent, DrainRate, ElsewherePace,
    FairQueue, HELD_CLASSES, Held, HeldClass, HeldSummary, PacedEvent, RequestRank, TenantService,
    WaitersByWorker, Waiting, WorkerWaiter, least_pause_us, weighted_tokens,
};
pub use block::{Attention, BlockEvent, EngineBlockHash, ExtraKey, Lora, RemovedBlocks, StoredBlocks, Tier};
pub use check::{Decision, InvalidVerdict, Offer, Route, check};
pub use circuit::{Admission, Circuit, CircuitChange, CircuitSpec, CircuitState};
pub use cost::{CostErrors, CostLine, CostModel, CostReading, CostSample};
pub use decision::{Choice, Hold, Rejection, Verdict, WaitsFor};
pub use dialect::Dialect;
pub use event::{Event, EventKind, EventKinds, EventListener};
pub use fallback::LeastLoaded;
pub use fault::{FaultKind, PolicyFault};
pub use feature::{
    CANDIDATE_CATALOGUE, CandidateFeature, FeatureDoc, FeaturePlan, REQUEST_CATALOGUE, RequestFeature,
    UnknownFeature,
};
pub use fleet::{Fleet, FleetChange};
pub use hex::hex;
pub use id::{DpRank, Generation, WorkerId, WorkerIds};
pub use load::{
    EngineReport, LoadLease, LoadReading, LoadTotals, OtherLoads, WorkerLoad, add_held_elsewhere,
};
pub use origin::Origin;
pub use pipeline::{
    Filter, FilterTest, Pick, Pipeline, PipelineError, PipelineObserver, PipelineSpec, Scored, ScorerCall,
    Term, TermSource, Unobserved, Weighed, Weigher, WeigherBuffers, Weighing, highest, scores_singly,
};
pub use policy::{
    DecisionInput, DecisionQueries, NoAnswers, Phase, Policy, PolicyDescription, RequestFacts, Scorer,
    is_secret_header,
};
pub use pool::Pool;
pub use random::{RunNumber, SplitMix64, hash_mix};
pub use store::{ObjectEvent, Shard, StoreId, StoreObject};
pub use transcript::{About, HostCall, HostResult, RecordedCall, StateRefusal, Transcript};
pub use versions::{Chosen, PolicyVersion, PolicyVersions};
pub use worker::{Role, Worker, WorkerSpec, hash_number, label_value};
