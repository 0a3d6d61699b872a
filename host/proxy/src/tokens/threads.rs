//! Thread pool for long prompts, with a bounded queue in which clients take turns (`turns.rs`). A job is skipped if its
//! requester no longer waits.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

use super::tokenize_request::PromptSender;
use super::turns::{Queued, Turns};

/// Thread pool. Dropping it ends the threads.
#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<ThreadsState>,
}

#[derive(Debug)]
struct ThreadsState {
    queue: Mutex<JobQueue>,
    /// Notified for each job, and at the end.
    available: Condvar,
}

#[derive(Debug)]
struct JobQueue {
    turns: Turns<PromptSender, Job>,
    has_ended: bool,
}

struct Job {
    /// Time after which the result is useless.
    deadline: Instant,
    work: Box<dyn FnOnce(JobTurn) + Send>,
}

/// State of a job when its turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobTurn {
    Now,
    Never(NoTurn),
}

/// Reason why a job is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// Its deadline passed before its turn.
    TooLate,
    /// Removed from the queue for another client's job.
    GaveWay,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Error: the queue is full.
#[derive(Debug)]
pub(super) struct JobQueueFull;

/// Client and deadline of a job.
pub(super) struct JobOrder {
    /// The client whose turn it takes.
    pub(super) sender: PromptSender,
    /// The job is not begun after it.
    pub(super) deadline: Instant,
}

impl Threads {
    pub(super) fn start(count: usize, limit: usize) -> io::Result<Arc<Self>> {
        let threads = Arc::new(Self {
            shared: Arc::new(ThreadsState {
                queue: Mutex::new(JobQueue {
                    turns: Turns::new(limit),
                    has_ended: false,
                }),
                available: Condvar::new(),
            }),
        });
        for number in 0..count {
            let shared = Arc::clone(&threads.shared);
            let thread = thread::Builder::new().name(format!("tokenize-{number}"));
            // Dropping the result ends the threads already started, also if a later one cannot be started.
            drop(thread.spawn(move || shared.run())?);
        }
        Ok(threads)
    }

    /// Runs `work` on a thread when its client's turn comes. No result arrives if `work` panics.
    pub(super) fn do_by<T: Send + 'static>(
        &self,
        order: JobOrder,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, NoTurn>>, JobQueueFull> {
        let JobOrder { sender, deadline } = order;
        let (done, waiting) = oneshot::channel();
        let work = Box::new(move |turn| {
            let _ = match turn {
                JobTurn::Now if done.is_closed() => return,
                JobTurn::Now => done.send(Ok(work())),
                JobTurn::Never(why) => done.send(Err(why)),
            };
        });
        self.push(sender, Job { deadline, work })?;
        Ok(waiting)
    }

    /// Runs `work` on a thread when its client's turn comes, unless that is too late. No request waits for it.
    pub(super) fn do_later(
        &self,
        order: JobOrder,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), JobQueueFull> {
        let JobOrder { sender, deadline } = order;
        let work = Box::new(move |turn| {
            if turn == JobTurn::Now {
                work();
            }
        });
        self.push(sender, Job { deadline, work })
    }

    fn push(&self, sender: PromptSender, job: Job) -> Result<(), JobQueueFull> {
        let queued = self.shared.lock().turns.push(sender, job);
        match queued {
            Queued::Waits => {}
            Queued::InPlaceOf(other) => (other.work)(JobTurn::Never(NoTurn::GaveWay)),
            Queued::Full(_) => return Err(JobQueueFull),
        }
        self.shared.available.notify_one();
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.available.notify_all();
    }
}

impl ThreadsState {
    fn run(&self) {
        while let Some(job) = self.next() {
            let turn = if Instant::now() < job.deadline {
                JobTurn::Now
            } else {
                JobTurn::Never(NoTurn::TooLate)
            };
            (job.work)(turn);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.has_ended {
                return None;
            }
            if let Some(job) = queue.turns.pop() {
                return Some(job);
            }
            queue = self.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, JobQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    fn of(tenant: &str) -> JobOrder {
        JobOrder {
            sender: PromptSender::Tenant(tenant.into()),
            deadline: Instant::now() + Duration::from_secs(60),
        }
    }

    #[test]
    fn work_is_done_by_a_thread() {
        let threads = Threads::start(2, 4).unwrap();
        let name = threads
            .do_by(of("a"), || thread::current().name().map(str::to_owned))
            .unwrap();
        let name = name.blocking_recv().unwrap().unwrap().unwrap();
        assert!(name.starts_with("tokenize-"));
    }

    type Held = (Arc<Threads>, oneshot::Receiver<Result<(), NoTurn>>, Arc<Barrier>);

    /// Creates a pool of one thread, which is busy until the barrier is reached.
    fn held_up(limit: usize) -> Held {
        let threads = Threads::start(1, limit).unwrap();
        let (begun, barrier) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (signal, wait) = (Arc::clone(&begun), Arc::clone(&barrier));
        let held = threads.do_by(of("held"), move || {
            signal.wait();
            wait.wait();
        });
        begun.wait();
        (threads, held.unwrap(), barrier)
    }

    #[test]
    fn a_full_queue_takes_no_more_of_the_same_client_and_one_of_another() {
        let (threads, first, barrier) = held_up(2);
        let second = threads.do_by(of("a"), || 2).unwrap();
        let third = threads.do_by(of("a"), || 3).unwrap();
        assert!(threads.do_by(of("a"), || 4).is_err());
        let other = threads.do_by(of("b"), || 5).unwrap();
        assert_eq!(third.blocking_recv().unwrap(), Err(NoTurn::GaveWay));
        barrier.wait();
        first.blocking_recv().unwrap().unwrap();
        assert_eq!(second.blocking_recv().unwrap(), Ok(2));
        assert_eq!(other.blocking_recv().unwrap(), Ok(5));
    }

    #[test]
    fn a_flood_of_one_client_does_not_keep_another_from_its_turn() {
        let (threads, _first, barrier) = held_up(64);
        let done = Arc::<Mutex<Vec<&str>>>::default();
        let submit = |tenant: &'static str| {
            let done = Arc::clone(&done);
            let work = move || done.lock().unwrap().push(tenant);
            threads.do_by(of(tenant), work).unwrap()
        };
        let mut flood: Vec<_> = (0..50).map(|_| submit("flood")).collect();
        let other = submit("other");
        let last = flood.pop().unwrap();
        barrier.wait();
        last.blocking_recv().unwrap().unwrap();
        let done = done.lock().unwrap();
        // One job of the flood was before it.
        assert_eq!(done[..3], ["flood", "other", "flood"]);
        drop(other);
    }

    #[test]
    fn expired_and_abandoned_jobs_are_not_run() {
        let (threads, first, barrier) = held_up(4);
        let at_once = JobOrder {
            deadline: Instant::now(),
            ..of("a")
        };
        let late = threads.do_by(at_once, || panic!("it is too late")).unwrap();
        let left = threads
            .do_by(of("a"), || panic!("no request waits for it"))
            .unwrap();
        drop(left);
        let last = threads.do_by(of("a"), || 4).unwrap();
        barrier.wait();
        first.blocking_recv().unwrap().unwrap();
        let late: Result<(), _> = late.blocking_recv().unwrap();
        assert_eq!(late, Err(NoTurn::TooLate));
        assert_eq!(last.blocking_recv().unwrap(), Ok(4));
    }
}
