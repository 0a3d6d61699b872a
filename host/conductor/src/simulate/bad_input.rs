//! What was typed, or a file that it names, is nothing to simulate.

/// Wraps why. Exit code 2 by [`crate::exit::Exit::of`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct BadInput(pub(super) anyhow::Error);
