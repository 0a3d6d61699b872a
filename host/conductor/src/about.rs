//! `conductor version`, `completions` and `man-pages`: the program about itself.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap_complete::Shell;
use conductor_tools::{Exit, print};

use crate::cli::command;

/// Contract between the router and policies.
const CONTRACT: &str = "conductor:policy@0.1.0";

/// Prints the version, and with `is_verbose` how the program was built.
///
/// # Errors
/// If standard output cannot be written.
pub fn version(is_verbose: bool) -> Result<Exit> {
    let mut text = format!(
        "conductor {}, policy contract {CONTRACT}\n",
        env!("CARGO_PKG_VERSION")
    );
    if is_verbose {
        for (name, value) in [
            ("commit", env!("CONDUCTOR_BUILD_COMMIT")),
            ("target", env!("CONDUCTOR_BUILD_TARGET")),
            ("profile", env!("CONDUCTOR_BUILD_PROFILE")),
            ("features", env!("CONDUCTOR_BUILD_FEATURES")),
            ("compiler", env!("CONDUCTOR_BUILD_COMPILER")),
        ] {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<9} {value}");
        }
    }
    print::write(text)?;
    Ok(Exit::Success)
}

/// Prints the script that completes commands in a shell.
///
/// # Errors
/// If standard output cannot be written.
pub fn completions(shell: Shell) -> Result<Exit> {
    // The generator panics if its output fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "conductor", &mut script);
    print::write(script)?;
    Ok(Exit::Success)
}

/// Writes the manual pages of all commands.
///
/// # Errors
/// If the folder or a page cannot be written.
pub fn man_pages(folder: &Path) -> Result<Exit> {
    let failed = || format!("failed to write the manual pages into `{}`", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(command(), folder).with_context(failed)?;
    Ok(Exit::Success)
}
