//! Reading of JSON bodies.

use serde::de::DeserializeOwned;

use crate::serving::refusal::Refusal;

/// Parses a body as this type.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::invalid(&error))
}
