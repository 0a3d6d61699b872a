//! The three things to do with `policies/prebuilt`: check it, rebuild it, compare it with a rebuild.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::build::build;
use crate::manifest::{Built, Manifest, component_file};
use crate::sources::{entries, policies, source_hash};
use crate::toolchain::{self, Toolchain};

/// What became of one component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The policy.
    pub policy: String,
    /// What is there now.
    pub built: Built,
    /// Whether its bytes are not what they were.
    pub changed: bool,
}

/// What comparing with a rebuild showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// Every component came out as it is committed.
    Same(Toolchain),
    /// These policies came out differently.
    Different(Vec<String>),
    /// Not compared, for this reason: another compiler gives other bytes.
    NotCompared(String),
}

/// What is wrong with `policies/prebuilt`, each with how to mend it; nothing where all is well. Needs no toolchain.
///
/// # Errors
/// Where a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    const MEND: &str = "run `cargo prebuild`";
    let Some(manifest) = Manifest::read(root)? else {
        return Ok(vec![format!(
            "policies/prebuilt/manifest.toml is missing; {MEND}"
        )]);
    };
    let mut problems = Vec::new();
    let policies: BTreeSet<String> = policies(root)?.into_iter().collect();
    for policy in &policies {
        let Some(recorded) = manifest.policies.get(policy) else {
            problems.push(format!("policy `{policy}` was never built; {MEND}"));
            continue;
        };
        let source = source_hash(root, policy)?;
        if source != recorded.source {
            problems.push(format!(
                "the sources of policy `{policy}` have changed since it was built; {MEND}"
            ));
        }
        match fs::read(component_file(root, policy)) {
            Err(_) => problems.push(format!("policies/prebuilt/{policy}.wasm is missing; {MEND}")),
            Ok(bytes) if Built::new(recorded.source.clone(), &bytes) != *recorded => {
                problems.push(format!(
                    "policies/prebuilt/{policy}.wasm is not what the manifest says; {MEND}"
                ));
            }
            Ok(_) => {}
        }
    }
    for stray in manifest.policies.keys().filter(|name| !policies.contains(*name)) {
        problems.push(format!(
            "the manifest names policy `{stray}`, which does not exist; {MEND}"
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
/// Where nothing can compile them, the compiler fails, or a file cannot be written.
pub fn prebuild(root: &Path) -> anyhow::Result<(Toolchain, Vec<Change>)> {
    let found = toolchain::find(root)?;
    let policies = policies(root)?;
    let mut manifest = Manifest {
        toolchain: found.toolchain.clone(),
        policies: Default::default(),
    };
    let mut changes = Vec::new();
    // Hashed before they are compiled: who edits meanwhile is told by the next check.
    let sources = policies
        .iter()
        .map(|policy| source_hash(root, policy))
        .collect::<Result<Vec<_>, _>>()?;
    let mut components = build(root, &found, &policies)?;
    for (policy, source) in policies.into_iter().zip(sources) {
        let component = components
            .remove(&policy)
            .with_context(|| format!("`{policy}` was not built"))?;
        let built = Built::new(source, &component);
        let path = component_file(root, &policy);
        let changed = fs::read(&path).ok().is_none_or(|before| before != component);
        fs::write(&path, &component).with_context(|| format!("failed to write `{}`", path.display()))?;
        manifest.policies.insert(policy.clone(), built.clone());
        changes.push(Change {
            policy,
            built,
            changed,
        });
    }
    manifest.write(root)?;
    Ok((found.toolchain, changes))
}

/// Builds every policy and compares with what is committed, where the compiler is the one that made it.
///
/// # Errors
/// Where the manifest is missing, the compiler fails, or a file cannot be read.
pub fn verify(root: &Path) -> anyhow::Result<Verification> {
    let manifest = Manifest::read(root)?.context("policies/prebuilt/manifest.toml is missing")?;
    let found = match toolchain::find(root) {
        Ok(found) => found,
        Err(error) => return Ok(Verification::NotCompared(error.to_string())),
    };
    if found.toolchain != manifest.toolchain {
        let (here, there) = (&found.toolchain, &manifest.toolchain);
        return Ok(Verification::NotCompared(format!(
            "they were built by\n  {there}\nand here is\n  {here}"
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
