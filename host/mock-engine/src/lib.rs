//! A fake inference engine: OpenAI-style HTTP and SSE, a paged prefix cache with its events over ZMQ, a cost
//! model for time, all of it deterministic by seed, with faults that can be scripted. It is the fleet of
//! `conductor demo` and of the tests, so it must not know anything of the router: it is written against what
//! real engines send (vLLM 0.32; see `README.md` for what is imitated and what is not).
//!
//! ```no_run
//! # async fn demo() -> Result<(), mock_engine::StartError> {
//! let engine = mock_engine::MockEngine::start(mock_engine::MockConfig::default()).await?;
//! println!("{} publishes its cache on {}", engine.url(), engine.kv_events());
//! engine.stop().await;
//! # Ok(()) }
//! ```

mod answer;
mod cache;
mod config;
mod core_loop;
mod cost;
mod engine;
mod event;
mod event_wire;
mod fault_script;
mod faults;
mod gate;
mod journal;
mod power;
mod publisher;
mod scheduler;
mod sequence;
mod serving;
mod stats;
mod tokens;
mod transfer;
mod vocabulary;
pub mod workload;

pub use config::{EventForm, HashForm, InvalidConfig, MockConfig, ReplayForm};
pub use cost::CostModel;
pub use engine::{MockEngine, StartError};
pub use fault_script::{BatchLoss, RequestFault, Times};
pub use faults::Faults;
pub use gate::EngineGone;
pub use publisher::PublisherError;
pub use serving::Recorded;
pub use stats::MockStats;
pub use tokens::tokenize;
pub use transfer::{Fabric, PdConfig, PdDialect, PdRole};
