//! A core module becomes a component.

use anyhow::Context as _;
use wit_component::ComponentEncoder;

/// Wraps a core module that carries its component type (as wit-bindgen leaves it), and validates the result.
/// Imports that the module does not use are left out.
pub(crate) fn componentise(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|encoder| encoder.encode())
        .context("failed to make a component of the core module")
}
