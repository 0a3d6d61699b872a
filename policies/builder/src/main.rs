//! `cargo prebuild`: rebuilds or checks `policies/prebuilt`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use policy_builder::{Verification, check, prebuild, verify};

/// Builds the policies into components, writes them to policies/prebuilt, and lists the changes.
#[derive(Debug, Parser)]
#[command(name = "cargo prebuild", bin_name = "cargo prebuild")]
struct Args {
    /// Only compare the sources with the manifest; needs no toolchain.
    #[arg(long, conflicts_with = "verify")]
    check: bool,
    /// Rebuild and compare the bytes instead of writing them.
    #[arg(long)]
    verify: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns false if the check found a problem.
fn run(args: &Args) -> anyhow::Result<bool> {
    let root = workspace_root()?;
    if args.check || args.verify {
        let problems = check(&root)?;
        for problem in &problems {
            eprintln!("error: {problem}");
        }
        if !problems.is_empty() {
            return Ok(false);
        }
        println!("policies/prebuilt matches its sources");
    }
    if args.check {
        return Ok(true);
    }
    if args.verify {
        return verify(&root).map(report);
    }
    let (toolchain, changes) = prebuild(&root)?;
    println!("built by {toolchain}");
    for change in changes {
        let state = if change.changed { "changed" } else { "unchanged" };
        let kib = change.built.bytes as f64 / 1024.0;
        println!(
            "{:16} {state:9} {kib:6.1} KiB  sha256 {}",
            change.policy, change.built.sha256
        );
    }
    Ok(true)
}

fn report(verification: Verification) -> bool {
    match verification {
        Verification::Same(toolchain) => {
            println!("the rebuilt bytes are identical, with {toolchain}");
            true
        }
        Verification::Different(policies) => {
            eprintln!(
                "error: the rebuilt bytes differ for {}; run `cargo prebuild`",
                policies.join(", ")
            );
            false
        }
        Verification::NotCompared(why) => {
            println!("notice: the bytes were not compared: {why}");
            true
        }
    }
}

/// Finds the nearest parent folder that contains the contract, so that the command works anywhere in the
/// tree.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("failed to find the current folder")?;
    let root = here.ancestors().find(|dir| dir.join("wit/policy.wit").exists());
    root.map(PathBuf::from)
        .context("found no `wit/policy.wit` in this folder or its parents")
}
