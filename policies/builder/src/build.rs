//! Compilation of policies: the same sources and compiler give the same bytes in any folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use policy_component::componentise;

use crate::sources::{SDK, entries, package};
use crate::toolchain::{FoundToolchain, StdRoute, TARGET};

/// Stack of 64 KiB: rustc's default of 1 MiB raises the cost of a fresh instance from 7 to 21 us. Vector instructions:
/// the SDK computes two candidates at once.
pub(crate) const COMPILER_FLAGS: [&str; 2] = ["-Clink-arg=-zstack-size=65536", "-Ctarget-feature=+simd128"];

/// Profile for policies in the workspace's `Cargo.toml`.
const PROFILE: &str = "policy";

/// Environment variables that would change the built bytes and do not start with one of `SETTING_PREFIXES`.
const FOREIGN_VARIABLES: [&str; 6] = [
    "LD_LIBRARY_PATH",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
];

/// Prefixes of cargo's settings. Any of them may change the built bytes (profile, flags, features of dependencies).
const SETTING_PREFIXES: [&str; 2] = ["CARGO_", "__CARGO_"];

/// Prefixes of cargo's settings for the origin of sources. They do not change the built bytes.
const SOURCE_PREFIXES: [&str; 4] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR"];

/// Compiles the policies and converts them to components, by name.
///
/// The first build on the Debian route also compiles the standard library, which takes minutes. Artefacts of
/// dependencies are kept in `target/policies`. Those of the policies and the SDK are removed first: cargo compares
/// times, not contents, and would use an artefact of other sources that is newer than the present ones.
///
/// # Errors
///
/// If the compiler fails or its module cannot be converted to a component.
pub(crate) fn build(
    root: &Path,
    found: &FoundToolchain,
    policies: &[String],
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let packages: Vec<String> = policies
        .iter()
        .map(|policy| package(root, policy))
        .collect::<Result<_, _>>()?;
    let mut clean = cargo_for("clean", root, found, &packages);
    run(clean.args(["--package", SDK]))?;
    let mut command = cargo_for("build", root, found, &packages);
    command.env("CARGO_ENCODED_RUSTFLAGS", rust_flags(root)?.join("\u{1f}"));
    if let Some(linker) = found.linker {
        command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    }
    if found.toolchain.route == StdRoute::Debian {
        command
            .arg("-Zbuild-std=std,panic_abort")
            .env("RUSTC_BOOTSTRAP", "1");
    }
    run(&mut command)?;

    let modules = target_dir(root).join(TARGET).join(PROFILE);
    let component = |(policy, package): (&String, &String)| {
        let path = modules.join(package.replace('-', "_")).with_extension("wasm");
        let module = std::fs::read(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
        let component = componentise(&module).with_context(|| format!("failed to build `{policy}`"))?;
        Ok((policy.clone(), component))
    };
    policies.iter().zip(&packages).map(component).collect()
}

fn target_dir(root: &Path) -> PathBuf {
    root.join("target/policies")
}

/// Creates a cargo command for the packages, with the profile and the target of policies.
fn cargo_for(verb: &str, root: &Path, found: &FoundToolchain, packages: &[String]) -> Command {
    let mut command = cargo(root, found);
    command
        .args([
            verb,
            "--locked",
            "--quiet",
            "--profile",
            PROFILE,
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target_dir(root))
        .args(packages.iter().flat_map(|package| ["--package", package]));
    command
}

/// Creates a cargo command without the caller's build settings.
fn cargo(root: &Path, found: &FoundToolchain) -> Command {
    let mut command = Command::new(&found.cargo);
    for (name, _) in std::env::vars_os() {
        if changes_bytes(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    command.current_dir(root).env("RUSTC", &found.rustc);
    command
}

/// Returns true if an environment variable of this name may change the built bytes.
fn changes_bytes(name: &str) -> bool {
    let starts_with = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let setting = starts_with(&SETTING_PREFIXES) && !starts_with(&SOURCE_PREFIXES);
    setting || FOREIGN_VARIABLES.contains(&name)
}

/// Returns the compiler's flags. Panic messages contain source paths, so this machine's folders are replaced
/// by fixed ones.
fn rust_flags(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut flags: Vec<String> = COMPILER_FLAGS.map(str::to_owned).into();
    let mut remap = |from: &Path, to: &str| {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    };
    remap(root, "/conductor");
    let sources = cargo_home()?.join("registry/src");
    if sources.exists() {
        for registry in entries(&sources)? {
            remap(&registry, "/crates");
        }
    }
    Ok(flags)
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let explicit = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || Some(std::env::home_dir()?.join(".cargo"));
    explicit
        .or_else(home)
        .context("neither `CARGO_HOME` nor a home folder is known")
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("failed to run `{program}`"))?;
    if !status.success() {
        let arguments: Vec<_> = command
            .get_args()
            .map(|argument| argument.to_string_lossy())
            .collect();
        bail!("`{program} {}` failed with {status}", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::changes_bytes;

    #[test]
    fn the_callers_build_settings_do_not_reach_the_compiler() {
        for name in [
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_RESOLVER_FEATURE_UNIFICATION",
            "CARGO_UNSTABLE_FEATURE_UNIFICATION",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTFLAGS",
            "__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS",
        ] {
            assert!(changes_bytes(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_HTTP_PROXY",
            "CARGO_REGISTRIES_MIRROR_INDEX",
            "PATH",
        ] {
            assert!(!changes_bytes(name), "{name}");
        }
    }
}
