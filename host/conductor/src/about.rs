//! `conductor version`, `completions` and `man-pages`: the program about itself.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap_complete::Shell;
use conductor_tools::Exit;

use crate::cli::command;

/// Contract between the router and policies.
const CONTRACT: &str = "conductor:policy@0.1.0";

/// Prints the version, and with `is_verbose` how the program was built.
///
/// # Errors
/// Never; commands have this type.
pub fn version(is_verbose: bool) -> Result<Exit> {
    println!(
        "conductor {}, policy contract {CONTRACT}",
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
            println!("{name:<9} {value}");
        }
    }
    Ok(Exit::Success)
}

/// Prints the script that completes commands in a shell.
///
/// # Errors
/// Never; commands have this type.
pub fn completions(shell: Shell) -> Result<Exit> {
    clap_complete::generate(shell, &mut command(), "conductor", &mut io::stdout());
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
