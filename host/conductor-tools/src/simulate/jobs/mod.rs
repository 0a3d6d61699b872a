//! Simulations that a router runs beside its requests, one at a time, each in a process of its own.

mod limits;
mod order;
mod process;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

pub(super) use self::limits::limit_process;
pub use self::order::{SimulatedPolicy, SimulationOrder};
pub(super) use self::process::PROGRESS;
use self::process::{JobEnd, run_process};

/// Jobs that are kept after their end.
const KEPT: usize = 8;
/// Parts of the progress.
const WHOLE: u32 = 10_000;

/// Running job and those that ended last.
#[derive(Debug, Clone, Default)]
pub struct SimulationJobs(Arc<Mutex<JobTable>>);

#[derive(Debug, Default)]
struct JobTable {
    /// Jobs by age.
    jobs: Vec<Arc<SimulationJob>>,
    started: u64,
}

/// One job.
#[derive(Debug)]
struct SimulationJob {
    id: String,
    policies: Vec<String>,
    rate: f64,
    at: SystemTime,
    /// Finished part, of [`WHOLE`].
    progress: AtomicU32,
    is_cancelled: AtomicBool,
    end: Mutex<Option<JobEnd>>,
}

/// State of a job.
#[derive(Debug, Serialize)]
pub struct JobReport {
    /// Id of the job.
    pub id: String,
    /// `running`, `done`, `failed` or `cancelled`.
    pub state: &'static str,
    /// Finished part, from 0 to 1.
    pub progress: f64,
    /// Names of the policies.
    pub policies: Vec<String>,
    /// Speed-up factor of the arrivals.
    pub rate: f64,
    /// Time of the start, in seconds since 1970.
    pub at: f64,
    /// Number of simulated requests, after the end.
    pub requests: Option<u64>,
    /// Figures of `conductor simulate --json`, after the end.
    pub result: Option<Value>,
    /// Reason of a failure.
    pub error: Option<String>,
}

/// Reason why a job does not start.
#[derive(Debug, Error)]
pub enum StartJobError {
    /// One is running.
    #[error("start a simulation: simulation {0} is running")]
    Running(String),
    /// The system starts no thread.
    #[error("start a thread for a simulation")]
    Thread(#[source] io::Error),
}

impl SimulationJobs {
    /// Starts a job, and returns its state.
    ///
    /// # Errors
    /// [`StartJobError`].
    pub fn start(&self, order: SimulationOrder) -> Result<JobReport, StartJobError> {
        let mut table = self.lock();
        if let Some(running) = table.jobs.iter().find(|job| job.is_running()) {
            return Err(StartJobError::Running(running.id.clone()));
        }
        let job = Arc::new(SimulationJob {
            id: format!("{}", table.started + 1),
            policies: order.policies.iter().map(|policy| policy.name.clone()).collect(),
            rate: order.rate,
            at: SystemTime::now(),
            progress: AtomicU32::new(0),
            is_cancelled: AtomicBool::new(false),
            end: Mutex::default(),
        });
        let running = Arc::clone(&job);
        thread::Builder::new()
            .name("simulation".to_owned())
            .spawn(move || running.run(&order))
            .map_err(StartJobError::Thread)?;
        table.started += 1;
        table.jobs.push(Arc::clone(&job));
        let surplus = table.jobs.len().saturating_sub(KEPT);
        table.jobs.drain(..surplus);
        Ok(job.report(false))
    }

    /// Returns all jobs without their results, the newest first.
    #[must_use]
    pub fn list(&self) -> Vec<JobReport> {
        let table = self.lock();
        let newest_first = table.jobs.iter().rev();
        newest_first.map(|job| job.report(false)).collect()
    }

    /// Returns a job with its result.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<JobReport> {
        Some(self.find(id)?.report(true))
    }

    /// Cancels a running job, and forgets another one. Returns its state before.
    #[must_use]
    pub fn remove(&self, id: &str) -> Option<JobReport> {
        let job = self.find(id)?;
        let report = job.report(false);
        if job.is_running() {
            job.is_cancelled.store(true, Ordering::Relaxed);
        } else {
            self.lock().jobs.retain(|kept| kept.id != id);
        }
        Some(report)
    }

    fn find(&self, id: &str) -> Option<Arc<SimulationJob>> {
        let table = self.lock();
        table.jobs.iter().find(|job| job.id == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, JobTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimulationJob {
    fn run(&self, order: &SimulationOrder) {
        let advance = |share: f64| {
            let parts = (share.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32;
            self.progress.fetch_max(parts, Ordering::Relaxed);
        };
        let end = run_process(order, &self.is_cancelled, advance);
        *self.lock() = Some(end);
    }

    fn is_running(&self) -> bool {
        self.lock().is_none()
    }

    fn report(&self, has_result: bool) -> JobReport {
        let end = self.lock();
        let since = self.at.duration_since(SystemTime::UNIX_EPOCH);
        let mut report = JobReport {
            id: self.id.clone(),
            state: "running",
            progress: f64::from(self.progress.load(Ordering::Relaxed)) / f64::from(WHOLE),
            policies: self.policies.clone(),
            rate: self.rate,
            at: since.map_or(0.0, |since| since.as_secs_f64()),
            requests: None,
            result: None,
            error: None,
        };
        match &*end {
            None => {}
            Some(JobEnd::Done(result)) => {
                report.state = "done";
                report.progress = 1.0;
                report.requests = result["facts"]["requests"].as_u64();
                report.result = has_result.then(|| result.clone());
            }
            Some(JobEnd::Cancelled) => report.state = "cancelled",
            Some(JobEnd::Failed(error)) => {
                report.state = "failed";
                report.error = Some(error.clone());
            }
        }
        report
    }

    fn lock(&self) -> MutexGuard<'_, Option<JobEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns an order whose program is a shell script.
    fn order(folder: &Path, script: &str) -> SimulationOrder {
        // A file of its own: one that is open for writing cannot be executed by the job before.
        let number = fs::read_dir(folder).unwrap().count();
        let program = folder.join(format!("program-{number}"));
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        SimulationOrder {
            program,
            log: "decisions.jsonl".into(),
            pool: None,
            rate: 2.0,
            policies: vec![SimulatedPolicy {
                name: "mine".to_owned(),
                argument: "policies/mine.wasm".to_owned(),
                folder: None,
            }],
        }
    }

    fn ended(jobs: &SimulationJobs, id: &str) -> JobReport {
        let start = Instant::now();
        loop {
            let report = jobs.get(id).unwrap();
            if report.state != "running" {
                return report;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{report:?}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_job_shows_its_progress_and_its_result_with_the_names_of_the_policies() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = SimulationJobs::default();
        let script = "echo progress 0.5 >&2\n\
                      printf '{\"facts\":{\"requests\":7},\"rows\":[{\"policy\":\"%s\",\"args\":\"%s\",' \"$2\" \"$*\"\n\
                      printf '\"words\":\"no verdict: %s failed\"}]}' \"$2\"";
        let started = jobs.start(order(folder.path(), script)).unwrap();
        assert_eq!(started.id, "1");
        let done = ended(&jobs, "1");
        assert_eq!((done.state, done.requests), ("done", Some(7)), "{done:?}");
        let row = &done.result.unwrap()["rows"][0];
        assert_eq!(row["policy"], "mine");
        let args = row["args"].as_str().unwrap();
        for argument in ["--speeds 2 ", "--compare ", "--job"] {
            assert!(args.contains(argument), "{args}");
        }
        assert_eq!(row["words"], "no verdict: mine failed");
        assert_eq!(jobs.list().len(), 1);
        assert!(jobs.list()[0].result.is_none());
        assert!(jobs.remove("1").is_some() && jobs.get("1").is_none());
    }

    #[test]
    fn one_job_runs_at_a_time_and_can_be_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = SimulationJobs::default();
        jobs.start(order(folder.path(), "exec sleep 600")).unwrap();
        let second = jobs.start(order(folder.path(), "exit 0"));
        assert!(matches!(second, Err(StartJobError::Running(id)) if id == "1"));
        assert_eq!(jobs.remove("1").unwrap().state, "running");
        assert_eq!(ended(&jobs, "1").state, "cancelled");
        jobs.start(order(folder.path(), "exit 0")).unwrap();
    }

    #[test]
    fn a_failed_job_has_the_last_words_of_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = SimulationJobs::default();
        jobs.start(order(
            folder.path(),
            "echo progress 0.1 >&2; echo conductor: no such log >&2; exit 2",
        ))
        .unwrap();
        let failed = ended(&jobs, "1");
        assert_eq!(failed.state, "failed");
        assert_eq!(failed.error.as_deref(), Some("conductor: no such log"));
        jobs.start(order(folder.path(), "echo no json")).unwrap();
        let failed = ended(&jobs, "2");
        assert!(failed.error.unwrap().contains("JSON"));
        for _ in 0..KEPT + 2 {
            let job = jobs.start(order(folder.path(), "exit 1")).unwrap();
            ended(&jobs, &job.id);
        }
        assert_eq!(jobs.list().len(), KEPT);
    }
}
