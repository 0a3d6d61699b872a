//! A decision log, decision by decision, each with the policy and the workers that it names.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use decision_log::{DecisionLine, ExplainedCall, Line, PolicyLine, SCHEMA, WorkerLine};
use routing::{RunNumber, Worker, WorkerId, WorkerSpec};
use thiserror::Error;

use local_files::regular_file;

/// A decision of the log.
pub(super) struct RecordedDecision {
    pub(super) line: DecisionLine,
    /// The run it was made in.
    pub(super) run: RunNumber,
    pub(super) policy: Arc<PolicyLine>,
    /// Row by row.
    pub(super) workers: Vec<Arc<Worker>>,
}

/// Bytes of a line at most: a decision over 10,000 workers with every column has a tenth of it.
const LONGEST_LINE: usize = 64 << 20;

/// A file of a log, line by line.
pub(crate) struct Lines<'a> {
    path: &'a Path,
    file: BufReader<File>,
    /// Number of the line read last, from 1.
    line: u64,
}

/// The files of a log, one after the other.
pub(super) struct Log<'a> {
    left: std::slice::Iter<'a, PathBuf>,
    file: Option<Lines<'a>>,
    text: Vec<u8>,
    policies: HashMap<u32, Arc<PolicyLine>>,
    workers: HashMap<u32, Arc<Worker>>,
    run: RunNumber,
    /// Lines that are no line of a log, as the last one of a router that was killed.
    pub(super) unreadable: u64,
    /// Decisions read.
    pub(super) decisions: u64,
    /// Outcomes read.
    pub(super) outcomes: u64,
}

/// A log cannot be read.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    /// The log could not be read.
    #[error("failed to read the log `{}`", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The line is not valid JSON.
    #[error("failed to read the log `{}`: line {line} is longer than {LONGEST_LINE} bytes, the limit of a decision log", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
    },
    /// The log has a version that this program does not read.
    #[error("failed to read the log `{}`: it has schema {found}, and this version reads {SCHEMA}", path.display())]
    Schema {
        /// Path of the file.
        path: PathBuf,
        /// Text of the log.
        found: u32,
    },
    /// The decisions cannot be repeated.
    #[error("failed to read the log `{}`: the `seed` of its first line is not a number of 16 hexadecimal digits", .0.display())]
    Seed(PathBuf),
}

impl RecordedDecision {
    /// Returns a decision that is kept in memory. `None` if its numbers do not fit its columns.
    pub(super) fn of(call: &ExplainedCall, run: RunNumber) -> Option<Self> {
        let recorded = Self {
            line: call.decision.clone(),
            run,
            policy: Arc::new(call.policy.clone()),
            workers: (call.workers.iter().cloned())
                .map(|line| Arc::new(worker(line)))
                .collect(),
        };
        let is_whole = recorded.workers.len() == recorded.line.ids.len() && recorded.has_all_numbers();
        is_whole.then_some(recorded)
    }

    fn has_all_numbers(&self) -> bool {
        let (line, policy) = (&self.line, &self.policy);
        let laid_out =
            |request: &[String], columns: &[String]| request.len() + columns.len() * line.ids.len();
        line.numbers.0.len() == laid_out(&policy.request_columns, &policy.columns)
            && line.more_numbers.0.len() == laid_out(&policy.more_request_columns, &policy.more_columns)
    }
}

impl<'a> Log<'a> {
    pub(super) fn open(files: &'a [PathBuf]) -> Self {
        Self {
            left: files.iter(),
            file: None,
            text: Vec::new(),
            policies: HashMap::new(),
            workers: HashMap::new(),
            run: RunNumber::default(),
            unreadable: 0,
            decisions: 0,
            outcomes: 0,
        }
    }

    /// Returns the next decision; none at the end of the last file.
    pub(super) fn next(&mut self) -> Result<Option<RecordedDecision>, LogError> {
        while let Some(path) = self.next_line()? {
            let Ok(line) = serde_json::from_slice::<Line>(&self.text) else {
                self.unreadable += 1;
                continue;
            };
            match line {
                Line::Log(log) if log.schema != SCHEMA => {
                    return Err(LogError::Schema {
                        path: path.to_owned(),
                        found: log.schema,
                    });
                }
                Line::Log(log) => {
                    let run = log.run_number();
                    self.run = run.ok_or_else(|| LogError::Seed(path.to_owned()))?;
                    self.policies.clear();
                    self.workers.clear();
                }
                Line::Worker(line) => {
                    self.workers.insert(line.id, Arc::new(worker(line)));
                }
                Line::Policy(line) => {
                    self.policies.insert(line.id, Arc::new(line));
                }
                Line::Outcome(_) => self.outcomes += 1,
                Line::Decision(line) => match self.complete(*line) {
                    Some(recorded) => {
                        self.decisions += 1;
                        return Ok(Some(recorded));
                    }
                    None => self.unreadable += 1,
                },
            }
        }
        Ok(None)
    }

    /// Joins a decision with the lines that it refers to. Returns none if one is missing.
    fn complete(&self, line: DecisionLine) -> Option<RecordedDecision> {
        let policy = Arc::clone(self.policies.get(&line.policy)?);
        let workers: Option<Vec<_>> = line.ids.iter().map(|id| self.workers.get(id).cloned()).collect();
        let recorded = RecordedDecision {
            policy,
            workers: workers?,
            run: self.run,
            line,
        };
        recorded.has_all_numbers().then_some(recorded)
    }

    /// Reads a line, and returns its file.
    fn next_line(&mut self) -> Result<Option<&'a Path>, LogError> {
        loop {
            let Some(file) = &mut self.file else {
                let Some(path) = self.left.next() else {
                    return Ok(None);
                };
                self.file = Some(Lines::open(path)?);
                continue;
            };
            if file.read(&mut self.text)? {
                return Ok(Some(file.path));
            }
            self.file = None;
        }
    }
}

impl<'a> Lines<'a> {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn open(path: &'a Path) -> Result<Self, LogError> {
        let file = regular_file::open(path).map_err(|source| failed(path, source))?;
        let (file, line) = (BufReader::new(file), 0);
        Ok(Self { path, file, line })
    }

    /// Reads the next line; false at the end of the file.
    ///
    /// # Errors
    /// If the line cannot be read, or is too long.
    pub(crate) fn read(&mut self, text: &mut Vec<u8>) -> Result<bool, LogError> {
        text.clear();
        self.line += 1;
        let mut bounded = (&mut self.file).take(LONGEST_LINE as u64 + 1);
        let read = bounded.read_until(b'\n', text);
        let read = read.map_err(|source| failed(self.path, source))?;
        if read > LONGEST_LINE {
            return Err(LogError::TooLong {
                path: self.path.to_owned(),
                line: self.line,
            });
        }
        Ok(read > 0)
    }
}

/// Returns the parameters under which the component of these bytes is in a log, each once.
pub(super) fn params_of(files: &[PathBuf], sha256: &str) -> Result<Vec<String>, LogError> {
    let mut found: Vec<String> = Vec::new();
    let mut text = Vec::new();
    for path in files {
        let mut lines = Lines::open(path)?;
        while lines.read(&mut text)? {
            // The others are not worth reading.
            let names_it = std::str::from_utf8(&text).is_ok_and(|text| text.contains(sha256));
            if !names_it {
                continue;
            }
            let Ok(line) = serde_json::from_slice::<Line>(&text) else {
                continue;
            };
            for params in params_in(line, sha256) {
                if !found.contains(&params) {
                    found.push(params);
                }
            }
        }
    }
    Ok(found)
}

/// Returns the parameters in a line: of a policy, or of the scorers of a pipeline.
fn params_in(line: Line, sha256: &str) -> Vec<String> {
    let named = match line {
        Line::Policy(policy) => vec![(policy.sha256, policy.params)],
        Line::Decision(decision) => {
            let scorers = decision
                .weighing
                .into_iter()
                .flat_map(|weighing| weighing.scorers);
            scorers.map(|scored| (scored.sha256, scored.params)).collect()
        }
        _ => Vec::new(),
    };
    let of_it = named
        .into_iter()
        .filter(|(found, _)| found.as_deref() == Some(sha256));
    of_it.filter_map(|(_, params)| params).collect()
}

fn failed(path: &Path, source: io::Error) -> LogError {
    LogError::Read {
        path: path.to_owned(),
        source,
    }
}

fn worker(line: WorkerLine) -> Worker {
    let labels = line.labels.into_iter();
    let labels: BTreeMap<Box<str>, Box<str>> =
        labels.map(|(key, value)| (key.into(), value.into())).collect();
    let spec = WorkerSpec {
        role: line.role.0,
        weight: line.weight.0,
        labels,
        // The URL is not recorded, and nothing that a policy sees.
        ..WorkerSpec::mixed(line.name, "")
    };
    Worker::new(WorkerId(line.id), spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of unreadable lines of a log with this text between two valid lines, or its error.
    fn read(text: &[u8]) -> Result<u64, LogError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions.jsonl");
        let first = br#"{"log":{"schema":1,"conductor":"0","run":"0","unix-us":0}}"#;
        std::fs::write(&path, [first, text, first].join(&b'\n')).unwrap();
        let files = [path];
        params_of(&files, "")?;
        let mut log = Log::open(&files);
        while log.next()?.is_some() {}
        Ok(log.unreadable)
    }

    #[test]
    fn a_log_without_a_run_number_is_of_run_0_and_one_that_is_no_number_is_refused() {
        let log = |seed: &str| {
            let text = format!(r#"{{"log":{{"schema":1,"conductor":"0","run":"0","unix-us":0{seed}}}}}"#);
            let Line::Log(log) = serde_json::from_str(&text).unwrap() else {
                unreachable!()
            };
            log.run_number()
        };
        assert_eq!(log(""), Some(RunNumber(0)));
        assert_eq!(log(r#","seed":"00000000000000ff""#), Some(RunNumber(255)));
        assert_eq!(log(r#","seed":"many""#), None);
        let bad = br#"{"log":{"schema":1,"conductor":"0","run":"0","seed":"many","unix-us":0}}"#;
        assert!(matches!(read(bad), Err(LogError::Seed(_))));
    }

    #[test]
    fn lines_that_no_router_wrote_are_counted() {
        assert_eq!(read(b"").unwrap(), 1);
        assert_eq!(read(b"\xff\xfe\n{\"policy\":").unwrap(), 2);
    }

    #[test]
    fn a_line_without_an_end_is_not_read_to_it() {
        let long = vec![b'x'; LONGEST_LINE + 1];
        let refused = read(&long).unwrap_err();
        assert!(matches!(refused, LogError::TooLong { line: 2, .. }), "{refused}");
    }
}
