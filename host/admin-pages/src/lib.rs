//! Admin pages: the operators' HTTP API, on a listener of its own, and the pages of the fleet on the clients' listener.
//!
//! A page that shows something reads it from its [`PageSources`]. A page that changes the configuration, the fleet or a
//! policy sends a [`control::ReloadCommand`] to the reload thread, the only writer, and answers with its result.

mod access;
mod body;
mod config_pages;
pub mod control;
mod discovery_page;
mod explain_page;
mod explore;
mod feeds_page;
mod index_page;
mod instances;
mod knowledge;
mod live_pages;
mod me_page;
mod pages;
mod policy_pages;
mod refusal;
mod reload_page;
mod replica_page;
mod report_pages;
mod request_pages;
mod route_pages;
mod status_page;
mod trial_page;

pub use access::{AdminKey, host_names};
pub use knowledge::{KnowledgeSources, Warning};
pub use pages::{AdminPages, FeedSources, FleetSources, PageSources};
