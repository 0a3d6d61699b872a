//! Errors of the legs of a split request.

use std::time::Duration;

use thiserror::Error;

use crate::base::reply::Refusal;

/// Error of a hand-over, besides those of a worker's connection.
#[derive(Debug, Clone, Copy, Error)]
pub(crate) enum LegError {
    #[error("get the whole answer of the prefill leg within {0:?}")]
    PrefillTimeout(Duration),
    #[error("hand over the prompt from the prefill worker")]
    NotHandedOver,
    #[error("hand over the prompt: the prefill worker's engine has restarted")]
    EngineRestarted,
    #[error("get the engine id from the prefill worker's bootstrap server")]
    EngineUnknown,
    #[error("get the port of the prefill worker's bootstrap server from its /server_info")]
    PortUnknown,
}

impl LegError {
    /// Returns `true` if another worker may be tried.
    pub(crate) fn may_go_elsewhere(self) -> bool {
        !matches!(self, Self::PrefillTimeout(_))
    }

    /// Returns `true` if the error does not count against the worker.
    pub(crate) fn is_blameless(self) -> bool {
        matches!(self, Self::EngineRestarted)
    }

    /// Returns `true` if no worker can have computed anything for the attempt.
    pub(crate) fn cost_nothing(self) -> bool {
        matches!(
            self,
            Self::EngineUnknown | Self::PortUnknown | Self::EngineRestarted
        )
    }
}

impl From<LegError> for Refusal {
    fn from(error: LegError) -> Self {
        match error {
            LegError::PrefillTimeout(_) => Self::PrefillSlow(error.into()),
            LegError::NotHandedOver | LegError::EngineRestarted => Self::NotHandedOver(error.into()),
            LegError::EngineUnknown | LegError::PortUnknown => Self::EngineUnknown(error.into()),
        }
    }
}
