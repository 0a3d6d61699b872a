//! Errors of the client as errors of the store.

use agreement::StoreError;

/// Returns the error of an attempted action, with the client's error as its cause.
pub(crate) fn failed(doing: &'static str, error: &dyn std::error::Error) -> StoreError {
    StoreError {
        doing,
        why: error.to_string(),
    }
}
