//! Process of a simulation: `conductor simulate --job`, which limits itself and reports its progress.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::order::SimulationOrder;

/// Real time after which a process is killed.
const LONGEST: Duration = Duration::from_secs(600);
/// Interval of looks at the process.
const LOOK: Duration = Duration::from_millis(50);
/// Requests that are simulated at most: the first of the log.
const REQUESTS: u32 = 20_000;
/// Largest report in bytes.
const MOST_OUTPUT: u64 = 16 << 20;
/// Longest line of standard error in bytes.
const LONGEST_LINE: u64 = 4 << 10;
/// Beginning of a line with the finished share.
pub(in crate::simulate) const PROGRESS: &str = "progress ";

/// End of a job.
#[derive(Debug)]
pub(super) enum JobEnd {
    Done(Value),
    Cancelled,
    Failed(String),
}

/// Runs the process to its end, or until it is cancelled.
pub(super) fn run_process(
    order: &SimulationOrder,
    is_cancelled: &AtomicBool,
    advance: impl Fn(f64) + Sync,
) -> JobEnd {
    let spawned = command(order).spawn();
    let mut child = match spawned {
        Ok(child) => RunningProcess(child),
        Err(error) => return JobEnd::Failed(format!("failed to start the simulation: {error}")),
    };
    let (Some(stdout), Some(stderr)) = (child.0.stdout.take(), child.0.stderr.take()) else {
        return JobEnd::Failed("the simulation has no output".to_owned());
    };
    thread::scope(|scope| {
        let output = scope.spawn(|| read_output(stdout));
        let words = scope.spawn(|| read_words(stderr, &advance));
        let end = child.wait(is_cancelled);
        // The pipes are closed by now, so both end.
        let (output, words) = (output.join(), words.join());
        match end {
            ProcessEnd::Cancelled => JobEnd::Cancelled,
            ProcessEnd::Late => JobEnd::Failed(format!("the simulation took longer than {LONGEST:?}")),
            ProcessEnd::Failed(error) => JobEnd::Failed(format!("failed to watch the simulation: {error}")),
            ProcessEnd::Ended => {
                let output = output.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
                result(order, output, words.unwrap_or_default())
            }
        }
    })
}

fn command(order: &SimulationOrder) -> Command {
    let mut command = Command::new(&order.program);
    command.arg("simulate");
    command.args(order.policies.iter().map(|policy| &policy.argument));
    command.arg("--log").arg(&order.log);
    if let Some(pool) = &order.pool {
        command.arg("--pool").arg(pool);
    }
    let speeds = order.rate.to_string();
    command.args([
        "--speeds",
        &speeds,
        "--requests",
        &REQUESTS.to_string(),
        "--compare",
        "--json",
        "--job",
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the report, with the policies' own names.
fn result(order: &SimulationOrder, output: io::Result<Vec<u8>>, words: String) -> JobEnd {
    let read = output.ok().filter(|output| !output.is_empty());
    let Some(output) = read else {
        return JobEnd::Failed(match words.is_empty() {
            true => "the simulation ended without a report".to_owned(),
            false => words,
        });
    };
    let Ok(mut report) = serde_json::from_slice::<Value>(&output) else {
        return JobEnd::Failed("the report of the simulation is no JSON".to_owned());
    };
    let policies = order.policies.iter();
    let names = policies.map(|policy| (policy.argument.as_str(), policy.name.as_str()));
    rename(&mut report, &names.collect());
    JobEnd::Done(report)
}

/// Replaces each text that is an argument by the name of its policy, and each argument in a verdict's words.
fn rename(value: &mut Value, names: &BTreeMap<&str, &str>) {
    match value {
        Value::String(text) => {
            if let Some(name) = names.get(text.as_str()) {
                *text = (*name).to_owned();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, names)),
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(words) if key == "words" => *words = renamed(words, names),
                    value => rename(value, names),
                }
            }
        }
        _ => {}
    }
}

/// Replaces each argument in a sentence by the name of its policy. Of two arguments at one place the longer one counts.
fn renamed(words: &str, names: &BTreeMap<&str, &str>) -> String {
    let (mut renamed, mut rest) = (String::with_capacity(words.len()), words);
    while let Some(letter) = rest.chars().next() {
        let here = names
            .iter()
            .filter(|(argument, _)| !argument.is_empty() && rest.starts_with(**argument));
        let (length, text) = match here.max_by_key(|(argument, _)| argument.len()) {
            Some((argument, name)) => (argument.len(), *name),
            None => (letter.len_utf8(), &rest[..letter.len_utf8()]),
        };
        renamed.push_str(text);
        rest = &rest[length..];
    }
    renamed
}

fn read_output(stdout: ChildStdout) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stdout.take(MOST_OUTPUT).read_to_end(&mut output)?;
    Ok(output)
}

/// Reads standard error to its end. Returns its last line that is no progress.
fn read_words(stderr: ChildStderr, advance: &impl Fn(f64)) -> String {
    let mut lines = BufReader::new(stderr);
    let (mut line, mut last) = (Vec::new(), String::new());
    loop {
        line.clear();
        match (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        match text.strip_prefix(PROGRESS).and_then(|share| share.parse().ok()) {
            Some(share) => advance(share),
            None if text.is_empty() => {}
            None => text.clone_into(&mut last),
        }
    }
}

/// A process; dropping this kills it.
struct RunningProcess(Child);

enum ProcessEnd {
    Ended,
    Cancelled,
    Late,
    Failed(io::Error),
}

impl RunningProcess {
    fn wait(&mut self, is_cancelled: &AtomicBool) -> ProcessEnd {
        let started = Instant::now();
        loop {
            let end = match self.0.try_wait() {
                Ok(Some(_)) => return ProcessEnd::Ended,
                Ok(None) if is_cancelled.load(Ordering::Relaxed) => ProcessEnd::Cancelled,
                Ok(None) if started.elapsed() > LONGEST => ProcessEnd::Late,
                Ok(None) => {
                    thread::sleep(LOOK);
                    continue;
                }
                Err(error) => ProcessEnd::Failed(error),
            };
            self.kill();
            return end;
        }
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_in_a_sentence_is_replaced_once() {
        let names = [("cache-aware", "prod"), ("/x/cache-aware.wasm", "cache-aware-2")].into();
        let words = "/x/cache-aware.wasm is faster than cache-aware: é";
        assert_eq!(renamed(words, &names), "cache-aware-2 is faster than prod: é");
    }
}
