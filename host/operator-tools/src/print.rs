//! Output of a command: text for people, or JSON for tools.

use std::fmt::Display;
use std::io;

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
    write(text)?;
    Ok(())
}

/// Writes text to standard output. Returns false if its reader has closed it (`| head`), which is not a failure.
///
/// # Errors
/// If standard output cannot be written.
pub fn write(text: impl AsRef<[u8]>) -> Result<bool> {
    write_to(&mut io::stdout().lock(), text.as_ref())
}

fn write_to(out: &mut impl io::Write, text: &[u8]) -> Result<bool> {
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output that fails.
    struct Failing(io::ErrorKind);

    impl io::Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_reader_is_reported_and_any_other_failure_is_an_error() {
        assert!(write_to(&mut Vec::new(), b"text").unwrap());
        assert!(!write_to(&mut Failing(io::ErrorKind::BrokenPipe), b"text").unwrap());
        assert!(write_to(&mut Failing(io::ErrorKind::StorageFull), b"text").is_err());
    }
}
