//! Instruction counts of the pure parts of a request's path: the same on every run, independent of the machine's load.
//!
//!     cargo run --release -p instructions            # counts, and compares with baseline.txt
//!     cargo run --release -p instructions -- write   # writes the counts as the new baseline
//!     cargo run --release -p instructions -- only peek-1k,hash-8k
//!
//! Needs valgrind. See README.md.

mod baseline;
mod cases;
mod chat_cases;
mod count;
mod native_policies;
mod request_cases;
mod stream_cases;
mod trace_cases;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use baseline::Baseline;
use cases::{ALLOCATIONS, CASES};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns `true` if every count is within the tolerance of the baseline.
fn run() -> Result<bool, Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (write, only) = match arguments[..] {
        // Under valgrind: a case, and how often.
        ["run", name, times] => {
            let case = CASES
                .iter()
                .find(|case| case.name == name)
                .ok_or("no such case")?;
            (case.run)(times.parse()?)?;
            return Ok(true);
        }
        [] => (false, None),
        ["write"] => (true, None),
        ["only", names] => (false, Some(names)),
        _ => return Err("expected nothing, `write`, or `only NAME,NAME`".into()),
    };
    let is_counted = |own: &str| only.is_none_or(|names| names.split(',').any(|name| name == own));
    let mut counted = Vec::new();
    for case in CASES.iter().filter(|case| is_counted(case.name)) {
        eprintln!("{}: {}", case.name, case.about);
        counted.push((case.name, count::instructions(case)?));
    }
    for (name, of) in ALLOCATIONS.iter().filter(|(name, _)| is_counted(name)) {
        let case = CASES.iter().find(|case| case.name == *of).ok_or("no such case")?;
        eprintln!("{name}: allocations of {of}");
        counted.push((name, count::allocations(case)?));
    }
    if write {
        baseline::write(&counted)?;
    }
    let (report, good) = Baseline::read()?.compare(&counted);
    print!("{report}");
    Ok(good)
}
