//! Error of a start.

use kv_feed::FeedError;
use local_files::ReadConfigError;
use policy_runtime::EngineError;
use thiserror::Error;

use crate::listeners::ListenError;
use crate::reload::{RefusedConfig, RefusedPlan};

/// Error of a start.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The configuration cannot be read.
    #[error(transparent)]
    Read(#[from] ReadConfigError),
    /// The configuration is invalid.
    #[error("failed to use the configuration")]
    Config(#[source] RefusedConfig),
    /// The thread that loads the policies failed.
    #[error("failed to load the policies")]
    Load(#[source] tokio::task::JoinError),
    /// WebAssembly cannot be set up.
    #[error("failed to start the policy engine")]
    Engine(#[source] EngineError),
    /// The event feeds cannot be set up.
    #[error("failed to start the KV-event feeds")]
    Feeds(#[source] FeedError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl From<RefusedPlan> for BuildError {
    fn from(refused: RefusedPlan) -> Self {
        Self::Config(refused.into_reason())
    }
}
