//! Loading behind the reloads: a thread that compiles and tries policies, one at a time, so that whoever applies rollbacks, edits
//! and instances never waits for a compiler.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use policy_runtime::{LoadError, PolicyEngine, PolicySettings, PolicyState, WasmPolicy};
use tracing::info;

use super::PolicyProblem;
use super::component::Digest;
use super::version::KeptBytes;

/// Orders that wait, of as many policies; their bytes are held. What has no room is read again when one is done.
const MOST: usize = 8;

/// Makes a policy of a component: the engine, or what a test puts in its place.
pub trait Loader: Send + Sync + fmt::Debug {
    /// Loads it, which blocks for as long as the compiler takes.
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

/// What is to be loaded, apart from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadOrder {
    pub(super) policy: String,
    pub(super) digest: Digest,
    pub(super) settings: PolicySettings,
}

/// The same with what it takes.
#[derive(Debug)]
pub(super) struct LoadJob {
    pub(super) order: LoadOrder,
    pub(super) bytes: KeptBytes,
    pub(super) state: Arc<PolicyState>,
}

/// What came of one.
#[derive(Debug)]
pub(super) struct LoadFinished {
    pub(super) order: LoadOrder,
    /// Where a rollback to it is to be kept.
    pub(super) bytes: Option<KeptBytes>,
    pub(super) result: LoadedPolicy,
}

pub(super) type LoadedPolicy = Result<Arc<WasmPolicy>, Arc<PolicyProblem>>;

/// Loads on the calling thread. A panic of the compiler is a problem of the policy.
pub(super) fn load(loader: &dyn Loader, job: &LoadJob) -> LoadedPolicy {
    let LoadJob { order, bytes, state } = job;
    let bytes: &Cow<'static, [u8]> = bytes;
    let load = || loader.load(&order.policy, bytes, &order.settings, Arc::clone(state));
    match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(policy)) => Ok(Arc::new(policy)),
        Ok(Err(refused)) => Err(Arc::new(PolicyProblem::Load(refused))),
        Err(_) => Err(Arc::new(PolicyProblem::Panicked)),
    }
}

/// The thread, and what it was ordered to do.
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

    /// The next job; none once it is over.
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
    /// Starts the thread. It calls `ring` whenever something is finished, and ends when this is dropped and what it loads is done.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(super) fn start(loader: Arc<dyn Loader>, ring: impl Fn() + Send + 'static) -> io::Result<Self> {
        let queue = Arc::new(JobQueue::default());
        let (done, finished) = sync_channel(MOST);
        let jobs = Arc::clone(&queue);
        let run = move || work(&*loader, &jobs, &done, ring);
        thread::Builder::new()
            .name("load-policies".to_owned())
            .spawn(run)?;
        Ok(Self {
            queue,
            finished,
            ordered: Vec::new(),
        })
    }

    /// Whether the same is on its way.
    pub(super) fn is_ordered(&self, policy: &str, (digest, settings): (&Digest, &PolicySettings)) -> bool {
        let mut ordered = self.ordered.iter();
        ordered.any(|order| order.policy == policy && order.digest == *digest && order.settings == *settings)
    }

    /// Whether anything of that policy is on its way.
    pub(super) fn has_order_of(&self, policy: &str) -> bool {
        self.ordered.iter().any(|order| order.policy == policy)
    }

    /// Whether there is room for another order of that policy.
    pub(super) fn has_room_for(&self, policy: &str) -> bool {
        let waiting = self.queue.lock();
        waiting.jobs.len() < MOST || waiting.jobs.iter().any(|job| job.order.policy == policy)
    }

    /// Orders one. It takes the place of another of the same policy that still waits: the newest file of a name wins.
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

    /// What was finished since the last asking.
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

fn work(loader: &dyn Loader, jobs: &JobQueue, done: &SyncSender<LoadFinished>, ring: impl Fn()) {
    while let Some(job) = jobs.next() {
        let result = load(loader, &job);
        let LoadJob { order, bytes, .. } = job;
        let bytes = Some(bytes);
        let finished = LoadFinished { order, bytes, result };
        if done.send(finished).is_err() {
            return;
        }
        ring();
    }
}
