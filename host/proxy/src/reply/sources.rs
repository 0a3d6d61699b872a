//! Refusals by the errors of other parts that lead to them.

use inference_api::{BodyError, HandshakeError};
use worker_client::SendError;

use super::Refusal;
use crate::connections::NoSeat;
use crate::intake::IntakeError;
use crate::pd::LegError;

impl From<IntakeError<hyper::Error>> for Refusal {
    fn from(error: IntakeError<hyper::Error>) -> Self {
        match error {
            IntakeError::TooLarge { limit } => Self::BodyTooLarge { limit },
            IntakeError::Stalled { .. } | IntakeError::Slow { .. } => Self::BodyTimeout,
            IntakeError::Full(_) => Self::BodiesFull,
            IntakeError::GaveWay => Self::BodyGaveWay,
            IntakeError::NoMemory => Self::MemoryFull,
            IntakeError::Broken(source) => Self::BodyBroken(source.into()),
        }
    }
}

impl From<NoSeat> for Refusal {
    fn from(none: NoSeat) -> Self {
        match none {
            NoSeat::Full => Self::ConnectionsFull,
            NoSeat::AddressFull => Self::AddressFull,
            NoSeat::Closing => Self::ShuttingDown,
        }
    }
}

impl From<LegError> for Refusal {
    fn from(error: LegError) -> Self {
        match error {
            LegError::Forward(error) => error.into(),
            LegError::BrokeOff(error) => Self::WorkerBrokeOff(error),
            LegError::PrefillTimeout(_) => Self::PrefillSlow(error),
            LegError::Refused(response) | LegError::NotServed(response) => Self::Relayed(response),
            LegError::NotHandedOver | LegError::EngineRestarted => Self::NotHandedOver(error),
            LegError::EngineUnknown => Self::EngineUnknown(error),
        }
    }
}

impl From<HandshakeError> for Refusal {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Invalid { source } => Self::BodyInvalid(source),
            BodyError::NotAnObject => Self::BodyNotObject,
            BodyError::Form { source } => Self::BodyNoForm(source),
            BodyError::Query { source } => Self::QueryInvalid(source),
        }
    }
}

/// For an attempt after which no other follows.
impl From<SendError> for Refusal {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Connect(_) => Self::NoWorker(Some(error)),
            SendError::Closed(_) | SendError::KeptClosed(_) => Self::WorkerClosed(error),
            SendError::BadAnswer(_) | SendError::UnexpectedUpgrade | SendError::TwoFramings => {
                Self::WorkerConfused(error)
            }
            SendError::FirstByteTimeout(_) => Self::WorkerSlow(error),
        }
    }
}
