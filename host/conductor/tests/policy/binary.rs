//! Runs the binary.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `conductor policy ARGS`.
pub(crate) fn policy<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    policy_in(Path::new("."), args)
}

/// Runs the command in a folder.
pub(crate) fn policy_in<A: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = A>) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_conductor"))
        .current_dir(folder)
        .arg("policy")
        .args(args)
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Run {
    /// Returns the standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the codes of its findings, without those of slow calls: they depend on the build and the machine.
    #[track_caller]
    pub(crate) fn findings(&self) -> Vec<String> {
        let report = self.json();
        let findings = report["findings"].as_array().unwrap();
        let codes = findings
            .iter()
            .map(|finding| finding["code"].as_str().unwrap().to_owned());
        codes.filter(|code| code != "slow").collect()
    }
}
