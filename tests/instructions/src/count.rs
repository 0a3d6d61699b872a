//! Counting: each case runs twice under callgrind, a few times and many times. The difference, shared out, is what one
//! time takes, whatever setting it up takes.

use std::env;
use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};

use crate::cases::Case;

/// Instructions of one time.
pub(crate) fn instructions(case: &Case) -> Result<u64, Box<dyn Error>> {
    let (few, many) = (case.times, 3 * case.times);
    let spent = total(case, many)?.saturating_sub(total(case, few)?);
    Ok(spent / u64::from(many - few))
}

fn total(case: &Case, times: u32) -> Result<u64, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let mut file = std::ffi::OsString::from("--callgrind-out-file=");
    file.push(&out);
    let ended = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(file)
        .arg(env::current_exe()?)
        .args(["run", case.name, &times.to_string()])
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("failed to start valgrind (Debian: valgrind): {error}"))?;
    if !ended.success() {
        return Err(format!("{} under valgrind: {ended}", case.name).into());
    }
    let text = fs::read_to_string(&out)?;
    let sum = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let sum = sum.or_else(|| text.lines().find_map(|line| line.strip_prefix("summary: ")));
    Ok(sum.ok_or("callgrind wrote no totals")?.trim().parse()?)
}
