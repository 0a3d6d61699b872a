//! Error of a start.

use std::path::PathBuf;

use conductor_config::Location;
use kv_feed::FeedError;
use local_files::{ConfigSource, ReadConfigError};
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
    /// An address of the configuration file cannot be listened on.
    #[error("failed to use {}:{at}", file.display())]
    ListenAt {
        /// Configuration file.
        file: PathBuf,
        /// Position of the address.
        at: Location,
        /// Cause.
        #[source]
        source: ListenError,
    },
    /// An address cannot be listened on that no file names: it is the default, or that of a flag.
    #[error(transparent)]
    Listen(ListenError),
}

impl BuildError {
    /// Returns the error of an address of this source.
    pub(super) fn of_address(error: ListenError, source: &ConfigSource) -> Self {
        match (error.at, source.file()) {
            (Some(at), Some(file)) => Self::ListenAt {
                file: file.to_owned(),
                at,
                source: error,
            },
            _ => Self::Listen(error),
        }
    }
}

impl From<RefusedPlan> for BuildError {
    fn from(refused: RefusedPlan) -> Self {
        Self::Config(refused.into_reason())
    }
}
