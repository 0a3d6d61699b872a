//! Discovery of a compiler that can build components on this machine.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// Target of the policies.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Folder of Debian's compiler, next to rustup's, which comes first in `PATH`.
const DEBIAN_BIN: &str = "/usr/bin";
/// Debian's linkers for WebAssembly, newest first.
const DEBIAN_LINKERS: [&str; 4] = ["wasm-ld-22", "wasm-ld-21", "wasm-ld-20", "wasm-ld"];

/// Origin of the standard library for the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StdRoute {
    /// Installed by `rustup target add wasm32-unknown-unknown`.
    Rustup,
    /// Compiled on this machine from Debian's `rust-web-src`.
    Debian,
}

/// Compiler, as recorded in the manifest: equal records build equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// Origin of the standard library.
    pub route: StdRoute,
    /// Output of `rustc --version`.
    pub rustc: String,
    /// Output of the linker's `--version`, if the linker is not part of the compiler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linker: Option<String>,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let route = match self.route {
            StdRoute::Rustup => "rustup",
            StdRoute::Debian => "debian",
        };
        write!(f, "{} ({route} route", self.rustc)?;
        if let Some(linker) = &self.linker {
            write!(f, ", {linker}")?;
        }
        f.write_str(")")
    }
}

/// Compiler and the programs to call.
#[derive(Debug)]
pub(crate) struct FoundToolchain {
    pub(crate) toolchain: Toolchain,
    pub(crate) cargo: OsString,
    pub(crate) rustc: OsString,
    /// Linker of the Debian route.
    pub(crate) linker: Option<&'static str>,
}

/// Finds a compiler: rustup's target if it is installed, else Debian's packages.
pub(crate) fn find(root: &Path) -> anyhow::Result<FoundToolchain> {
    if let Some(found) = rustup(root)? {
        return Ok(found);
    }
    match debian()? {
        Some(found) => Ok(found),
        None => bail!(
            "nothing here can compile for {TARGET}. Either\n  \
             rustup target add {TARGET}\n\
             or, on Debian,\n  \
             apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22"
        ),
    }
}

fn rustup(root: &Path) -> anyhow::Result<Option<FoundToolchain>> {
    let from_cargo = |name: &str, default: &str| std::env::var_os(name).unwrap_or_else(|| default.into());
    let (cargo, rustc) = (from_cargo("CARGO", "cargo"), from_cargo("RUSTC", "rustc"));
    let mut rustc_query = Command::new(&rustc);
    rustc_query
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(root);
    let Ok(libdir) = output(&mut rustc_query) else {
        return Ok(None);
    };
    let has_std = std::fs::read_dir(&libdir).is_ok_and(|mut files| {
        files.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libstd-")))
    });
    if !has_std {
        return Ok(None);
    }
    let version = output(Command::new(&rustc).arg("--version").current_dir(root))?;
    Ok(Some(FoundToolchain {
        toolchain: Toolchain {
            route: StdRoute::Rustup,
            rustc: version,
            linker: None,
        },
        cargo,
        rustc,
        linker: None,
    }))
}

fn debian() -> anyhow::Result<Option<FoundToolchain>> {
    let (cargo, rustc) = (
        Path::new(DEBIAN_BIN).join("cargo"),
        Path::new(DEBIAN_BIN).join("rustc"),
    );
    let linker = DEBIAN_LINKERS
        .into_iter()
        .find(|name| Path::new(DEBIAN_BIN).join(name).exists());
    let (true, true, Some(linker)) = (cargo.exists(), rustc.exists(), linker) else {
        return Ok(None);
    };
    let sysroot = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
    if !PathBuf::from(sysroot)
        .join("lib/rustlib/src/rust/library/std/Cargo.toml")
        .exists()
    {
        return Ok(None);
    }
    Ok(Some(FoundToolchain {
        toolchain: Toolchain {
            route: StdRoute::Debian,
            rustc: output(Command::new(&rustc).arg("--version"))?,
            linker: Some(output(Command::new(linker).arg("--version"))?),
        },
        cargo: cargo.into(),
        rustc: rustc.into(),
        linker: Some(linker),
    }))
}

/// Returns the trimmed output of a command.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // `cargo run` sets the library path to its own compiler's libraries; another compiler must not load them.
    let output = command.env_remove("LD_LIBRARY_PATH").output();
    let output = output.with_context(|| format!("failed to run `{program}`"))?;
    if !output.status.success() {
        bail!(
            "`{program}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
