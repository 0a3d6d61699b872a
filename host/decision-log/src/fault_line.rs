//! Fault of a policy call, as the logs have it.

use serde::{Deserialize, Serialize};

use crate::text::cut;

/// Maximum recorded length of a fault's message, in bytes.
const MAX_DETAIL: usize = 512;

/// Fault of a policy call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLine {
    /// Kind, as in metrics.
    pub kind: String,
    /// Message in one line.
    pub detail: String,
}

impl From<&routing::PolicyFault> for FaultLine {
    fn from(fault: &routing::PolicyFault) -> Self {
        Self {
            kind: fault.kind.as_str().to_owned(),
            detail: cut(&fault.detail, MAX_DETAIL).into_owned(),
        }
    }
}
