//! Worker discovery: workers that come from outside the configuration file.
//!
//! A source gives an answer: the workers that it has now. This crate decodes answers ([`target_groups`],
//! [`KubeStore`]), accepts or keeps workers by them ([`AcceptedWorkers`]), and lays the workers over the configuration
//! ([`lay_over`]). Pure: bytes and values in, values out. It opens no socket and reads no clock.
//! See `host/adr/0035-worker-discovery.md`.

mod accepted;
mod attributes;
mod decoded;
mod kubernetes;
mod lay_over;
mod target_groups;
mod worker;

pub use accepted::{AcceptedChange, AcceptedWorkers};
pub use decoded::{AnswerError, Decoded, EntryFault};
pub use kubernetes::{KubeStore, KubeStoreError, KubeView, LineBuffer, LineTooLong, ListPages, WatchChange};
pub use lay_over::{LaidOver, LeftOut, MOST_DISCOVERED, SourceWorkers, lay_over};
pub use target_groups::target_groups;
pub use worker::{DiscoveredWorker, WorkerDefaults};
