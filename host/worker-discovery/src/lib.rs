//! Worker discovery: workers that come from outside the configuration file.
//!
//! A source gives an answer: the workers that it has now. This crate decodes answers ([`target_groups`],
//! [`KubeStore`]), decides which of them to believe ([`Belief`]), and lays the workers over the configuration
//! ([`lay_over`]). Pure: bytes and values in, values out. It opens no socket and reads no clock.
//! See `host/adr/0035-worker-discovery.md`.

mod attributes;
mod belief;
mod decoded;
mod kubernetes;
mod lay_over;
mod target_groups;
mod worker;

pub use belief::{Belief, BeliefChange};
pub use decoded::{AnswerError, Decoded, EntryFault};
pub use kubernetes::{KubeStore, KubeStoreError, KubeView, LineBuffer, LineTooLong, ListPages, WatchChange};
pub use lay_over::{LaidOver, LeftOut, MOST_DISCOVERED, SourceWorkers, lay_over};
pub use target_groups::target_groups;
pub use worker::{DiscoveredWorker, WorkerDefaults};
