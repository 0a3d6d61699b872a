//! Runs the binary.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use harness::ProgramRun;

/// Runs `conductor policy ARGS`.
pub(crate) fn policy<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> ProgramRun {
    policy_in(Path::new("."), args)
}

/// Runs the command in a folder.
pub(crate) fn policy_in<A: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = A>) -> ProgramRun {
    let output = Command::new(env!("CARGO_BIN_EXE_conductor"))
        .current_dir(folder)
        .arg("policy")
        .args(args)
        .output()
        .unwrap();
    ProgramRun::of(output)
}

/// Returns the codes of a run's findings, without those of slow calls: they depend on the build and the machine.
#[track_caller]
pub(crate) fn findings(run: &ProgramRun) -> Vec<String> {
    let report = run.json();
    let findings = report["findings"].as_array().unwrap();
    let codes = findings
        .iter()
        .map(|finding| finding["code"].as_str().unwrap().to_owned());
    codes.filter(|code| code != "slow").collect()
}
