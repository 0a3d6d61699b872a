//! Builder of the policy components, and the check of `policies/prebuilt` against its sources.
//!
//! The check needs no toolchain: a manifest records, for each component, the hashes of its sources and of its
//! bytes. The builder does not depend on the policies' logic or on the router.

mod build;
mod manifest;
mod prebuilt;
mod sources;
mod toolchain;

pub use manifest::{BuiltComponent, Manifest};
pub use prebuilt::{ComponentChange, Verification, check, prebuild, verify};
pub use sources::{policies, source_hash};
pub use toolchain::{StdRoute, Toolchain};
