//! What a command prints of its findings: text for people, or JSON for tools.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::Result;
use serde::Serialize;

/// Prints `findings` as JSON, or as what they are `told` as.
pub(crate) fn print(findings: &impl Serialize, told: impl Display, json: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(findings)? + "\n"
    } else {
        told.to_string()
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that has gone away (`| head`) is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
