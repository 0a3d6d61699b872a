//! Background loader: a thread that compiles and tries policies one at a time, so that no reload waits for the
//! compiler.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use policy_runtime::{LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use tracing::info;

use super::PolicyProblem;
use super::digest::Digest;
use super::version::KeptBytes;

/// Most waiting jobs, one per policy; their bytes are kept. A policy without room is read again when a job is done.
const MOST: usize = 8;

/// Loader of components: the engine, or a test's replacement.
pub trait Loader: Send + Sync + fmt::Debug {
    /// Loads a component. Blocks until it is compiled.
    ///
    /// # Errors
    /// [`LoadError`].
    fn load(
        &self,
        name: &str,
        bytes: &[u8],
        settings: &PolicySettings,
        state: Arc<PolicyState>,
    ) -> Result<WasmPolicy, LoadError>;
}

impl Loader for PolicyEngine {
    fn load(
        &self,
        name: &str,
        bytes: &[u8],
        settings: &PolicySettings,
        state: Arc<PolicyState>,
    ) -> Result<WasmPolicy, LoadError> {
        Self::load(self, name, bytes, settings, state)
    }
}

/// Identity of a job: policy, bytes and settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadOrder {
    pub(super) policy: String,
    pub(super) digest: Digest,
    pub(super) settings: PolicySettings,
}

/// Job of the loader.
#[derive(Debug)]
pub(super) struct LoadJob {
    pub(super) order: LoadOrder,
    pub(super) bytes: KeptBytes,
    pub(super) state: Arc<PolicyState>,
}

/// Result of a job.
#[derive(Debug)]
pub(super) struct LoadFinished {
    pub(super) order: LoadOrder,
    /// Bytes, if a rollback to it is to be kept.
    pub(super) bytes: Option<KeptBytes>,
    pub(super) result: LoadedPolicy,
    /// Duration of the job.
    pub(super) took: Duration,
}

pub(super) type LoadedPolicy = Result<Arc<WasmPolicy>, Arc<PolicyProblem>>;

/// Runs a job on the calling thread.
pub(super) fn run(loader: &dyn Loader, job: LoadJob) -> LoadFinished {
    let begun = Instant::now();
    let result = load(loader, &job);
    LoadFinished {
        order: job.order,
        bytes: Some(job.bytes),
        result,
        took: begun.elapsed(),
    }
}

/// Loads a policy. A panic of the compiler counts as a problem of the policy.
fn load(loader: &dyn Loader, job: &LoadJob) -> LoadedPolicy {
    let LoadJob { order, bytes, state } = job;
    let bytes: &Cow<'static, [u8]> = bytes;
    let load = || loader.load(&order.policy, bytes, &order.settings, Arc::clone(state));
    match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(policy)) => Ok(Arc::new(policy)),
        Ok(Err(refused)) => Err(Arc::new(PolicyProblem::Load(refused))),
        Err(_) => Err(Arc::new(PolicyProblem::Panicked)),
    }
}

/// Handle of the thread, with the jobs that it has.
#[derive(Debug)]
pub(super) struct Loading {
    queue: Arc<JobQueue>,
    finished: Receiver<LoadFinished>,
    /// WaitingJobs or being loaded: not yet among what [`Loading::take_finished`] gave.
    ordered: Vec<LoadOrder>,
}

#[derive(Debug, Default)]
struct JobQueue {
    waiting: Mutex<WaitingJobs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingJobs {
    jobs: VecDeque<LoadJob>,
    is_over: bool,
}

impl JobQueue {
    fn lock(&self) -> MutexGuard<'_, WaitingJobs> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next job. Returns none at the end.
    fn next(&self) -> Option<LoadJob> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Loading {
    /// Starts the thread. It calls `notify` after each job, and ends after the drop of this handle and its current job.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub(super) fn start(loader: Arc<dyn Loader>, notify: impl Fn() + Send + 'static) -> io::Result<Self> {
        let queue = Arc::new(JobQueue::default());
        let (done, finished) = sync_channel(MOST);
        let jobs = Arc::clone(&queue);
        let run = move || work(&*loader, &jobs, &done, notify);
        thread::Builder::new()
            .name("load-policies".to_owned())
            .spawn(run)?;
        Ok(Self {
            queue,
            finished,
            ordered: Vec::new(),
        })
    }

    /// Returns true if this job waits or runs.
    pub(super) fn is_ordered(&self, policy: &str, digest: &Digest, settings: &PolicySettings) -> bool {
        let mut ordered = self.ordered.iter();
        ordered.any(|order| order.policy == policy && order.digest == *digest && order.settings == *settings)
    }

    /// Returns true if a job of the policy waits or runs.
    pub(super) fn has_order_of(&self, policy: &str) -> bool {
        self.ordered.iter().any(|order| order.policy == policy)
    }

    /// Returns true if there is room for another job of the policy.
    pub(super) fn has_room_for(&self, policy: &str) -> bool {
        let waiting = self.queue.lock();
        waiting.jobs.len() < MOST || waiting.jobs.iter().any(|job| job.order.policy == policy)
    }

    /// Adds a job. It replaces a waiting job of the same policy: the newest file wins.
    pub(super) fn order(&mut self, job: LoadJob) {
        let order = job.order.clone();
        let mut waiting = self.queue.lock();
        let same = waiting
            .jobs
            .iter_mut()
            .find(|waits| waits.order.policy == order.policy);
        if let Some(waits) = same {
            self.ordered.retain(|known| *known != waits.order);
            *waits = job;
        } else {
            waiting.jobs.push_back(job);
        }
        drop(waiting);
        info!(policy = order.policy, "a new version of the policy is compiled");
        self.ordered.push(order);
        self.queue.changed.notify_one();
    }

    /// Returns the results since the last call.
    pub(super) fn take_finished(&mut self) -> Vec<LoadFinished> {
        let finished: Vec<_> = self.finished.try_iter().collect();
        for LoadFinished { order, .. } in &finished {
            self.ordered.retain(|known| known != order);
        }
        finished
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_one();
    }
}

fn work(loader: &dyn Loader, jobs: &JobQueue, done: &SyncSender<LoadFinished>, notify: impl Fn()) {
    while let Some(job) = jobs.next() {
        if done.send(run(loader, job)).is_err() {
            return;
        }
        notify();
    }
}
