//! Builds the policies into components and checks `policies/prebuilt` against their sources.
//!
//! The check needs no toolchain: a manifest keeps, for each component, the hash of the sources that made it and
//! of its own bytes. Knows nothing of what the policies do or how the router loads them.

mod build;
mod manifest;
mod prebuilt;
mod sources;
mod toolchain;

pub use manifest::{Built, Manifest};
pub use prebuilt::{Change, Verification, check, prebuild, verify};
pub use sources::{policies, source_hash};
pub use toolchain::{Route, Toolchain};
