//! Operations on `policies/prebuilt`: check, rebuild, compare with a rebuild.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::build::build;
use crate::manifest::{BuiltComponent, Manifest, component_file};
use crate::sources::{entries, policies, source_hash};
use crate::toolchain::{self, Toolchain};

/// Result of rebuilding one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentChange {
    /// Name of the policy.
    pub policy: String,
    /// Record of the new component.
    pub built: BuiltComponent,
    /// True if the bytes differ from the previous component.
    pub changed: bool,
}

/// Result of comparing the components with a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// All components are identical.
    Same(Toolchain),
    /// Components of these policies differ.
    Different(Vec<String>),
    /// No comparison, for the given reason: another compiler produces other bytes.
    NotCompared(String),
}

/// Returns the problems of `policies/prebuilt`, each with its remedy; empty if there are none. Needs no
/// toolchain.
///
/// # Errors
///
/// If a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    const REMEDY: &str = "run `cargo prebuild`";
    let Some(manifest) = Manifest::read(root)? else {
        return Ok(vec![format!(
            "policies/prebuilt/manifest.toml is missing; {REMEDY}"
        )]);
    };
    let mut problems = Vec::new();
    let policies: BTreeSet<String> = policies(root)?.into_iter().collect();
    for policy in &policies {
        let Some(recorded) = manifest.policies.get(policy) else {
            problems.push(format!("policy `{policy}` is not built yet; {REMEDY}"));
            continue;
        };
        let source = source_hash(root, policy)?;
        if source != recorded.source {
            problems.push(format!(
                "the sources of policy `{policy}` have changed since it was built; {REMEDY}"
            ));
        }
        match fs::read(component_file(root, policy)) {
            Err(_) => problems.push(format!("policies/prebuilt/{policy}.wasm is missing; {REMEDY}")),
            Ok(bytes) if BuiltComponent::new(recorded.source.clone(), &bytes) != *recorded => {
                problems.push(format!(
                    "policies/prebuilt/{policy}.wasm does not match the manifest; {REMEDY}"
                ));
            }
            Ok(_) => {}
        }
    }
    for stray in manifest.policies.keys().filter(|name| !policies.contains(*name)) {
        problems.push(format!(
            "the manifest names policy `{stray}`, but there is no such policy; {REMEDY}"
        ));
    }
    for path in entries(&root.join("policies/prebuilt"))? {
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.extension().is_some_and(|end| end == "wasm") && !policies.contains(&stem) {
            problems.push(format!(
                "policies/prebuilt/{stem}.wasm belongs to no policy; delete it"
            ));
        }
    }
    Ok(problems)
}

/// Builds every policy and writes the components and the manifest.
///
/// # Errors
///
/// If there is no toolchain, the compiler fails, or a file cannot be written.
pub fn prebuild(root: &Path) -> anyhow::Result<(Toolchain, Vec<ComponentChange>)> {
    let found = toolchain::find(root)?;
    let policies = policies(root)?;
    let mut manifest = Manifest {
        toolchain: found.toolchain.clone(),
        policies: Default::default(),
    };
    let mut changes = Vec::new();
    // Hashed before the compilation, so that the next check detects edits made meanwhile.
    let sources = policies
        .iter()
        .map(|policy| source_hash(root, policy))
        .collect::<Result<Vec<_>, _>>()?;
    let mut components = build(root, &found, &policies)?;
    for (policy, source) in policies.into_iter().zip(sources) {
        let component = components
            .remove(&policy)
            .with_context(|| format!("`{policy}` was not built"))?;
        let built = BuiltComponent::new(source, &component);
        let path = component_file(root, &policy);
        let changed = fs::read(&path).ok().is_none_or(|before| before != component);
        fs::write(&path, &component).with_context(|| format!("failed to write `{}`", path.display()))?;
        manifest.policies.insert(policy.clone(), built.clone());
        changes.push(ComponentChange {
            policy,
            built,
            changed,
        });
    }
    manifest.write(root)?;
    Ok((found.toolchain, changes))
}

/// Builds every policy and compares it with the committed component, if the manifest names the same compiler.
///
/// # Errors
///
/// If the manifest is missing, the compiler fails, or a file cannot be read.
pub fn verify(root: &Path) -> anyhow::Result<Verification> {
    let manifest = Manifest::read(root)?.context("policies/prebuilt/manifest.toml is missing")?;
    let found = match toolchain::find(root) {
        Ok(found) => found,
        Err(error) => return Ok(Verification::NotCompared(error.to_string())),
    };
    if found.toolchain != manifest.toolchain {
        let (here, there) = (&found.toolchain, &manifest.toolchain);
        return Ok(Verification::NotCompared(format!(
            "the committed components were built by\n  {there}\nbut this machine has\n  {here}"
        )));
    }
    let components = build(root, &found, &policies(root)?)?;
    let differs = |(policy, component): &(&String, &Vec<u8>)| {
        fs::read(component_file(root, policy)).ok().as_ref() != Some(*component)
    };
    let different: Vec<_> = components
        .iter()
        .filter(differs)
        .map(|(policy, _)| policy.clone())
        .collect();
    Ok(if different.is_empty() {
        Verification::Same(found.toolchain)
    } else {
        Verification::Different(different)
    })
}
