//! Names the author chooses: they become metric labels, log fields and file names.

use crate::code::Code;
use crate::instance::first_of;
use crate::report::{Problem, Report};
use crate::source::{Source, Span};

/// Longest name, in bytes.
pub(crate) const MOST_BYTES: usize = 128;

/// Reports a name that begins with something else than a letter or a digit, or holds something else than
/// letters, digits and `allowed`. `what` is as in "`x` cannot name a pool".
pub(crate) fn check(name: &str, allowed: &str, what: &str, span: &Span, report: &Report) -> bool {
    let begins_well =
        name.starts_with(|c: char| c.is_ascii_alphanumeric() || (c == '[' && allowed.contains(c)));
    let is_fine = begins_well
        && name.len() <= MOST_BYTES
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || allowed.contains(c));
    if !is_fine {
        report.push(
            Problem::new(Code::InvalidName, span, format!("`{name}` cannot name {what}")).help(format!(
                "use letters, digits and any of {allowed} after the first, at most {MOST_BYTES} in all"
            )),
        );
    }
    is_fine
}

/// Whether a policy can have that name.
///
/// # Errors
/// Why not, and which it could have.
pub fn check_policy_name(name: &str) -> Result<(), String> {
    let report = Report::new(Source::new("name", name));
    if check(name, IN_NAMES, "a policy", &(0..name.len()), &report) {
        return Ok(());
    }
    Err(first_of(report))
}

/// What may be in the names of pools and policies.
pub(crate) const IN_NAMES: &str = "-_.";

/// What may be in the names of workers, which are `host:port` unless given.
pub(crate) const IN_WORKER_NAMES: &str = "-_.:/@[]";
