//! Counting: each case runs twice under valgrind, a few times and many times. The difference, shared out, is what one
//! time takes, whatever setting it up takes. Callgrind counts instructions, dhat allocations.

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::process::{Command, Stdio};

use crate::cases::Case;

type Count = Result<u64, Box<dyn Error>>;

/// Returns the instructions of one time.
pub(crate) fn instructions(case: &Case) -> Count {
    of_one_time(case, total)
}

/// Returns the allocations of one time. One that only grows is not counted again.
pub(crate) fn allocations(case: &Case) -> Count {
    of_one_time(case, blocks)
}

fn of_one_time(case: &Case, count: fn(&Case, u32) -> Count) -> Count {
    let (few, many) = (case.times, 3 * case.times);
    let spent = count(case, many)?.saturating_sub(count(case, few)?);
    Ok(spent / u64::from(many - few))
}

/// Runs a case under a tool of valgrind, and returns what that wrote to its standard error.
fn run(case: &Case, times: u32, arguments: &[&OsStr]) -> Result<String, Box<dyn Error>> {
    let ended = Command::new("valgrind")
        .args(arguments)
        .arg(env::current_exe()?)
        .args(["run", case.name, &times.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("failed to start valgrind (Debian: valgrind): {error}"))?;
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    if !ended.status.success() {
        return Err(format!("{} under valgrind: {}\n{text}", case.name, ended.status).into());
    }
    Ok(text)
}

fn total(case: &Case, times: u32) -> Count {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("callgrind.out");
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(&out);
    run(
        case,
        times,
        &["--quiet".as_ref(), "--tool=callgrind".as_ref(), &file],
    )?;
    let text = fs::read_to_string(&out)?;
    let sum = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let sum = sum.or_else(|| text.lines().find_map(|line| line.strip_prefix("summary: ")));
    Ok(sum.ok_or("callgrind wrote no totals")?.trim().parse()?)
}

/// Counts the blocks that were ever allocated.
fn blocks(case: &Case, times: u32) -> Count {
    let text = run(
        case,
        times,
        &["--tool=dhat".as_ref(), "--dhat-out-file=/dev/null".as_ref()],
    )?;
    let line = text.lines().find(|line| line.contains(" Total:"));
    let blocks = line
        .and_then(|line| line.strip_suffix(" blocks")?.rsplit_once(' '))
        .ok_or("dhat wrote no total")?;
    Ok(blocks.1.replace(',', "").parse()?)
}
