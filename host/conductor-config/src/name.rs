//! User-defined names: they become metrics labels, log fields and file names.

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::source::{Source, Span};

/// Longest name, in bytes.
pub(crate) const MOST_BYTES: usize = 128;

/// Reports a name that does not begin with a letter or digit, or has characters other than letters, digits and
/// `allowed`. `what` is as in "`x` cannot name a pool".
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

/// Checks the name of a policy.
///
/// # Errors
/// The fault, and the allowed characters.
pub fn check_policy_name(name: &str) -> Result<(), String> {
    let report = Report::new(Source::new("name", name));
    if check(name, IN_NAMES, "a policy", &(0..name.len()), &report) {
        return Ok(());
    }
    Err(report.first_problem())
}

/// Additional characters in names of pools and policies.
pub(crate) const IN_NAMES: &str = "-_.";

/// Additional characters in names of workers, which default to `host:port`.
pub(crate) const IN_WORKER_NAMES: &str = "-_.:/@[]";
