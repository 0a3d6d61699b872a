//! Output of a command: text for people, or JSON for tools.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::Result;
use serde::Serialize;

/// Prints findings as JSON, or as text.
///
/// # Errors
/// If they cannot be serialised, or standard output cannot be written.
pub fn print(findings: &impl Serialize, text: impl Display, json: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(findings)? + "\n"
    } else {
        text.to_string()
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A closed reader (`| head`) is not a failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
