//! Source hash: one hash over all sources that determine a component's bytes, independent of machine and line
//! endings.
//!
//! The compiler is not included; the manifest names it next to the hash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use crate::build::COMPILER_FLAGS;
use crate::manifest::hex;

/// SDK crate that every policy depends on.
pub(crate) const SDK: &str = "conductor-policy-sdk";

/// Returns the policies of a workspace: the folders of `policies/` whose crate is a `cdylib`.
///
/// # Errors
///
/// If the folder or a crate's `Cargo.toml` cannot be read.
pub fn policies(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for path in entries(&root.join("policies"))? {
        let cargo = path.join("Cargo.toml");
        if cargo.exists() && is_component(&read_table(&cargo)?) {
            let name = path.file_name().context("failed to name a policy's folder")?;
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Returns the crate name of a policy: its folder's name, unless a crate of the router has that name.
///
/// # Errors
///
/// If its `Cargo.toml` cannot be read or has no package name.
pub(crate) fn package(root: &Path, policy: &str) -> anyhow::Result<String> {
    let cargo = root.join("policies").join(policy).join("Cargo.toml");
    let table = read_table(&cargo)?;
    let name = table.get("package").and_then(|package| package.get("name"));
    let name = name.and_then(Value::as_str);
    Ok(name
        .with_context(|| format!("failed to find the name of the package in `{}`", cargo.display()))?
        .to_owned())
}

/// Computes the source hash: SHA-256, in hex.
///
/// It covers the policy's sources, the SDK's, `wit/*.wit`, the guest's parts of the workspace's `Cargo.toml`,
/// the locked versions of the guest's dependencies, and the linker's flags.
///
/// # Errors
///
/// If a file cannot be read.
pub fn source_hash(root: &Path, policy: &str) -> anyhow::Result<String> {
    let policy_dir = root.join("policies").join(policy);
    let sdk_dir = root.join("policy-sdk");
    let mut files = vec![policy_dir.join("Cargo.toml"), sdk_dir.join("Cargo.toml")];
    for dir in [policy_dir.join("src"), sdk_dir.join("src"), root.join("wit")] {
        collect(&dir, &mut files)?;
    }
    files.retain(|path| {
        !path.starts_with(root.join("wit")) || path.extension().is_some_and(|end| end == "wit")
    });
    files.sort();

    let mut hash = Sha256::new();
    for path in files {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .replace('\\', "/");
        let bytes = fs::read(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
        part(&mut hash, &name, &unix_lines(&bytes));
    }
    let direct = direct_dependencies(&[&policy_dir, &sdk_dir])?;
    part(&mut hash, "Cargo.toml", guest_settings(root, &direct)?.as_bytes());
    part(&mut hash, "Cargo.lock", locked(root, &direct)?.as_bytes());
    part(&mut hash, "flags", COMPILER_FLAGS.join(" ").as_bytes());
    Ok(hex(&hash.finalize()))
}

/// Hashes one named part, preceded by its lengths, so that no two lists of parts are ambiguous.
fn part(hash: &mut Sha256, name: &str, bytes: &[u8]) {
    for field in [name.as_bytes(), bytes] {
        hash.update((field.len() as u64).to_le_bytes());
        hash.update(field);
    }
}

fn unix_lines(bytes: &[u8]) -> Vec<u8> {
    let next = bytes.iter().skip(1).chain([&0]);
    let kept = bytes
        .iter()
        .zip(next)
        .filter(|&(&byte, &next)| !(byte == b'\r' && next == b'\n'));
    kept.map(|(&byte, _)| byte).collect()
}

/// Collects the files below a folder, unsorted.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for path in entries(dir)? {
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the entries of a folder, sorted, without hidden files.
pub(crate) fn entries(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        paths.retain(|path| {
            !path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'))
        });
        paths.sort();
        Ok(paths)
    };
    read().with_context(|| format!("failed to read the folder `{}`", dir.display()))
}

fn read_table(path: &Path) -> anyhow::Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read `{}`", path.display()))?;
    text.parse()
        .with_context(|| format!("failed to parse `{}`", path.display()))
}

fn is_component(cargo: &Table) -> bool {
    let types = cargo
        .get("lib")
        .and_then(|lib| lib.get("crate-type"))
        .and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|kind| kind.as_str() == Some("cdylib")))
}

/// Returns the direct dependencies of the guest's crates for any target, without dev-dependencies.
fn direct_dependencies(crates: &[&Path]) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for dir in crates {
        let cargo = read_table(&dir.join("Cargo.toml"))?;
        let targets = cargo.get("target").and_then(Value::as_table);
        let targets = targets
            .into_iter()
            .flat_map(Table::values)
            .filter_map(Value::as_table);
        for table in targets.chain([&cargo]) {
            let dependencies = table.get("dependencies").and_then(Value::as_table);
            names.extend(dependencies.into_iter().flat_map(Table::keys).cloned());
        }
    }
    names.remove(SDK);
    Ok(names)
}

/// Extracts from the workspace's `Cargo.toml` the package defaults, the profiles, and the guest's
/// dependencies.
fn guest_settings(root: &Path, direct: &BTreeSet<String>) -> anyhow::Result<String> {
    let cargo = read_table(&root.join("Cargo.toml"))?;
    let get = |path: [&str; 2]| cargo.get(path[0]).and_then(|table| table.get(path[1])).cloned();
    let mut dependencies =
        get(["workspace", "dependencies"]).and_then(|value| value.try_into::<Table>().ok());
    if let Some(dependencies) = &mut dependencies {
        dependencies.retain(|name, _| direct.contains(name));
    }
    let parts = [
        ("dependencies", dependencies.map(Value::Table)),
        ("package", get(["workspace", "package"])),
        ("profile-policy", get(["profile", "policy"])),
        ("profile-release", get(["profile", "release"])),
    ];
    let settings: Table = parts
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    toml::to_string(&settings).context("failed to write the guest's settings as TOML")
}

/// Lists the locked packages reachable from the guest's dependencies, one a line, and the component encoder.
fn locked(root: &Path, direct: &BTreeSet<String>) -> anyhow::Result<String> {
    let lock = read_table(&root.join("Cargo.lock"))?;
    let Some(packages) = lock.get("package").and_then(Value::as_array) else {
        bail!("`Cargo.lock` lists no packages");
    };
    let ours = |name: &str| packages.iter().find(|package| text(package, "name") == name);
    let mut open: Vec<&str> = Vec::new();
    for (owner, wanted) in [(SDK, None), ("policy-component", Some("wit-component"))] {
        let needs = ours(owner).into_iter().flat_map(dependencies);
        open.extend(needs.filter(|need| {
            let name = need.split(' ').next().unwrap_or_default();
            wanted.map_or_else(|| direct.contains(name), |wanted| name == wanted)
        }));
    }
    let mut reached = BTreeSet::new();
    while let Some(need) = open.pop() {
        let mut words = need.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        let package = packages.iter().find(|package| {
            text(package, "name") == name && version.is_none_or(|version| text(package, "version") == version)
        });
        let package = package.with_context(|| format!("`{need}` is not in `Cargo.lock`"))?;
        let line = format!(
            "{name} {} {}\n",
            text(package, "version"),
            text(package, "checksum")
        );
        if reached.insert(line) {
            open.extend(dependencies(package));
        }
    }
    Ok(reached.into_iter().collect())
}

fn dependencies(package: &Value) -> impl Iterator<Item = &str> {
    let list = package.get("dependencies").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package.get(key).and_then(Value::as_str).unwrap_or_default()
}
