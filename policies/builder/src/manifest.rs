//! `policies/prebuilt/manifest.toml`: the components, the hashes of their sources, and the compiler.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::toolchain::Toolchain;

const HEADER: &str = "# Written by `cargo prebuild`; do not edit.\n\n";

/// Contents of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Compiler of all components.
    pub toolchain: Toolchain,
    /// Components by policy name.
    pub policies: BTreeMap<String, BuiltComponent>,
}

/// Record of one built component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltComponent {
    /// [`crate::source_hash`] of its sources.
    pub source: String,
    /// SHA-256 of the component's bytes, in hex.
    pub sha256: String,
    /// Length of the component in bytes.
    pub bytes: u64,
}

impl BuiltComponent {
    /// Describes a component built from sources with that hash.
    #[must_use]
    pub fn new(source: String, component: &[u8]) -> Self {
        Self {
            source,
            sha256: hex(&Sha256::digest(component)),
            bytes: component.len() as u64,
        }
    }
}

impl Manifest {
    /// Reads the manifest of a workspace; none if the file does not exist.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or parsed.
    pub fn read(root: &Path) -> anyhow::Result<Option<Self>> {
        let path = manifest_file(root);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("failed to read `{}`", path.display()))?;
        let manifest = toml::from_str(&text);
        manifest.with_context(|| format!("failed to parse `{}`", path.display()))
    }

    /// Writes the manifest.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, root: &Path) -> anyhow::Result<()> {
        let path = manifest_file(root);
        let text = toml::to_string(self).context("failed to write the manifest as TOML")?;
        fs::write(&path, format!("{HEADER}{text}"))
            .with_context(|| format!("failed to write `{}`", path.display()))
    }
}

/// Returns the path of a policy's component.
pub(crate) fn component_file(root: &Path, policy: &str) -> PathBuf {
    root.join("policies/prebuilt").join(policy).with_extension("wasm")
}

fn manifest_file(root: &Path) -> PathBuf {
    root.join("policies/prebuilt/manifest.toml")
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
