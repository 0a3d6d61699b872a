//! Programs that a build runs. On a terminal their lines appear above the spinner, else on standard error.

use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::policy::progress::StepProgress;

/// Longest line that is shown whole.
const LINE: u64 = 64 * 1024;
/// Wait for the lines of a process that outlives the program.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Streams of a program that are shown; another one is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownStreams {
    /// Standard output and standard error.
    Everything,
    /// Standard error.
    Errors,
}

/// Runs a program to its end, and shows its lines.
///
/// # Errors
/// Where it cannot be started or awaited.
pub(super) fn run(mut command: Command, shown: ShownStreams, progress: &StepProgress) -> io::Result<Output> {
    command.stdin(Stdio::null());
    if let Some(spinner) = progress.spinner() {
        let spinner = spinner.clone();
        return run_by_lines(command, shown, move |line| spinner.println(line));
    }
    if shown == ShownStreams::Everything {
        command.stdout(io::stderr());
    }
    command.stderr(Stdio::inherit()).output()
}

/// Runs a program to its end, and passes each of its shown lines on as it comes.
fn run_by_lines(
    mut command: Command,
    shown: ShownStreams,
    show: impl Fn(&str) + Send + 'static,
) -> io::Result<Output> {
    let (reader, writer) = io::pipe()?;
    if shown == ShownStreams::Everything {
        command.stdout(writer.try_clone()?);
    }
    command.stderr(writer);
    let (reading, read) = sync_channel::<()>(0);
    thread::Builder::new().spawn(move || {
        each_line(reader, show);
        drop(reading);
    })?;
    let output = command.output();
    // The command has the last of this process' ends to write to.
    drop(command);
    // The reader ends with the last writer, which may be a process that the program left behind.
    let _ = read.recv_timeout(LAST_LINES);
    output
}

fn each_line(reader: PipeReader, show: impl Fn(&str)) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while let Ok(1..) = reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
        show(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Returns the shown lines and the captured output of a script.
    fn lines_of(script: &str, shown: ShownStreams) -> (Vec<String>, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::clone(&lines);
        let output = run_by_lines(command, shown, move |line| {
            held.lock().unwrap().push(line.to_owned());
        });
        let captured = String::from_utf8(output.unwrap().stdout).unwrap();
        let lines = lines.lock().unwrap().clone();
        (lines, captured)
    }

    #[test]
    fn lines_of_both_streams_are_shown_in_their_order() {
        let (lines, captured) = lines_of("echo one; echo two >&2; printf three", ShownStreams::Everything);
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(captured, "");
    }

    #[test]
    fn a_captured_stream_is_not_shown() {
        let (lines, captured) = lines_of("echo one; echo two >&2", ShownStreams::Errors);
        assert_eq!(lines, ["two"]);
        assert_eq!(captured, "one\n");
    }

    #[test]
    fn a_process_that_the_program_leaves_behind_is_not_awaited() {
        let (lines, _) = lines_of("echo one; sleep 5 & true", ShownStreams::Everything);
        assert_eq!(lines, ["one"]);
    }
}
