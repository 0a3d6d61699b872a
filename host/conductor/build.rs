//! Build information for `conductor version --verbose`: commit, target, features and compiler.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CONDUCTOR_COMMIT");
    // Its time changes with each commit.
    let log = "../../.git/logs/HEAD";
    if Path::new(log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = env::var("CONDUCTOR_COMMIT").ok();
    let commit = given.or_else(|| output("git", &["rev-parse", "--short=12", "HEAD"]));
    let compiler = env::var("RUSTC").ok();
    let compiler = compiler.and_then(|compiler| output(&compiler, &["--version"]));
    let features = env::vars().filter_map(|(name, _)| {
        let feature = name.strip_prefix("CARGO_FEATURE_")?;
        Some(feature.to_lowercase().replace('_', "-"))
    });
    let features: Vec<String> = features.collect();
    let features = match features.is_empty() {
        true => "none".to_owned(),
        false => features.join(", "),
    };
    let unknown = || "unknown".to_owned();
    for (name, value) in [
        ("COMMIT", commit.unwrap_or_else(unknown)),
        ("TARGET", env::var("TARGET").unwrap_or_else(|_| unknown())),
        ("PROFILE", env::var("PROFILE").unwrap_or_else(|_| unknown())),
        ("COMPILER", compiler.unwrap_or_else(unknown)),
        ("FEATURES", features),
    ] {
        println!("cargo:rustc-env=CONDUCTOR_BUILD_{name}={value}");
    }
}

/// Returns the first line that a program prints, if it succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
