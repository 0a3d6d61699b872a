//! A decision log, decision by decision, each with the policy and the workers that it names.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proxy::record::{DecisionLine, Line, PolicyLine, SCHEMA, WorkerLine};
use routing::{Worker, WorkerId, WorkerSpec};
use serde::Deserialize;
use thiserror::Error;

/// A decision of the log.
pub(super) struct Recorded {
    pub(super) line: DecisionLine,
    pub(super) policy: Arc<PolicyLine>,
    /// Row by row.
    pub(super) workers: Vec<Arc<Worker>>,
}

/// The files of a log, one after the other.
pub(super) struct Log<'a> {
    left: std::slice::Iter<'a, PathBuf>,
    file: Option<(&'a Path, BufReader<File>)>,
    text: String,
    policies: HashMap<u32, Arc<PolicyLine>>,
    workers: HashMap<u32, Arc<Worker>>,
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
    /// Not at all.
    #[error("failed to read the log `{}`", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Not by this version.
    #[error("failed to read the log `{}`: it has schema {found}, and this version reads {SCHEMA}", path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// As it says.
        found: u32,
    },
}

impl<'a> Log<'a> {
    pub(super) fn open(files: &'a [PathBuf]) -> Self {
        Self {
            left: files.iter(),
            file: None,
            text: String::new(),
            policies: HashMap::new(),
            workers: HashMap::new(),
            unreadable: 0,
            decisions: 0,
            outcomes: 0,
        }
    }

    /// The next decision; none at the end of the last file.
    pub(super) fn next(&mut self) -> Result<Option<Recorded>, LogError> {
        while let Some(path) = self.next_line()? {
            let Ok(line) = serde_json::from_str::<Line>(&self.text) else {
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
                Line::Log(_) => {
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

    /// With what it names; none where that was not told of before, or numbers are missing.
    fn complete(&self, line: DecisionLine) -> Option<Recorded> {
        let policy = Arc::clone(self.policies.get(&line.policy)?);
        let workers: Option<Vec<_>> = line.ids.iter().map(|id| self.workers.get(id).cloned()).collect();
        let laid_out =
            |request: &[String], columns: &[String]| request.len() + columns.len() * line.ids.len();
        let is_whole = line.numbers.0.len() == laid_out(&policy.request_columns, &policy.columns)
            && line.more_numbers.0.len() == laid_out(&policy.more_request_columns, &policy.more_columns);
        is_whole.then_some(Recorded {
            policy,
            workers: workers?,
            line,
        })
    }

    /// Reads a line, and says of which file.
    fn next_line(&mut self) -> Result<Option<&'a Path>, LogError> {
        loop {
            let Some((path, file)) = &mut self.file else {
                let Some(path) = self.left.next() else {
                    return Ok(None);
                };
                self.file = Some((path, open(path)?));
                continue;
            };
            self.text.clear();
            let read = file.read_line(&mut self.text);
            let path = *path;
            match read {
                Ok(0) => self.file = None,
                Ok(_) => return Ok(Some(path)),
                // Not text: no line that a router wrote.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => self.unreadable += 1,
                Err(source) => return Err(failed(path, source)),
            }
        }
    }
}

/// The parameters under which the component of these bytes is in a log, each once.
pub(super) fn params_of(files: &[PathBuf], sha256: &str) -> Result<Vec<String>, LogError> {
    /// The only line that is looked at.
    #[derive(Deserialize)]
    struct Only {
        policy: PolicyLine,
    }
    let mut found: Vec<String> = Vec::new();
    for path in files {
        for line in open(path)?.lines() {
            let line = match line {
                Ok(line) => line,
                // Not text: no line that a router wrote.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
                Err(source) => return Err(failed(path, source)),
            };
            if !line.starts_with("{\"policy\":") {
                continue;
            }
            let Ok(Only { policy }) = serde_json::from_str(&line) else {
                continue;
            };
            let params = policy.params.filter(|_| policy.sha256.as_deref() == Some(sha256));
            if let Some(params) = params.filter(|params| !found.contains(params)) {
                found.push(params);
            }
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<BufReader<File>, LogError> {
    let file = File::open(path).map_err(|source| failed(path, source))?;
    Ok(BufReader::new(file))
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
        name: line.name.into(),
        // Not recorded, and nothing that a policy sees.
        url: "".into(),
        role: line.role.0,
        models: vec![],
        weight: line.weight.0,
        labels,
        rank: None,
        bootstrap: None,
    };
    Worker::new(WorkerId(line.id), spec)
}
