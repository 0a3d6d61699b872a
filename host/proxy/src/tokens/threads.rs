//! Threads for prompts that would hold up others where they came in: a few, with a queue that has an end. Who waits for an
//! answer no more is not served.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

/// The threads; they end when it is dropped.
#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Rung for each job, and at the end.
    bell: Condvar,
    limit: usize,
}

#[derive(Debug)]
struct Queue {
    jobs: VecDeque<Job>,
    has_ended: bool,
}

struct Job {
    /// Later it is of no use.
    deadline: Instant,
    work: Box<dyn FnOnce(Turn) + Send>,
}

/// Whether a job is to be done when its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    TooLate,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// As many wait as may.
#[derive(Debug)]
pub(super) struct QueueFull;

impl Threads {
    pub(super) fn start(count: usize, limit: usize) -> io::Result<Arc<Self>> {
        let threads = Arc::new(Self {
            shared: Arc::new(Shared {
                queue: Mutex::new(Queue {
                    jobs: VecDeque::new(),
                    has_ended: false,
                }),
                bell: Condvar::new(),
                limit,
            }),
        });
        for number in 0..count {
            let shared = Arc::clone(&threads.shared);
            let thread = thread::Builder::new().name(format!("tokenize-{number}"));
            // Ended by the drop of what is returned, also where a later one cannot be had.
            drop(thread.spawn(move || shared.run())?);
        }
        Ok(threads)
    }

    /// Does `work` on one of them. The answer does not come where its time was up before, or `work` panicked.
    pub(super) fn do_by<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, QueueFull> {
        let (done, waiting) = oneshot::channel();
        let work = Box::new(move |turn| {
            if turn == Turn::Now && !done.is_closed() {
                let _ = done.send(work());
            }
        });
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= self.shared.limit {
            return Err(QueueFull);
        }
        queue.jobs.push_back(Job { deadline, work });
        drop(queue);
        self.shared.bell.notify_one();
        Ok(waiting)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.bell.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next() {
            let turn = if Instant::now() < job.deadline {
                Turn::Now
            } else {
                Turn::TooLate
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
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue = self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn work_is_done_by_a_thread() {
        let threads = Threads::start(2, 4).unwrap();
        let name = threads
            .do_by(later(), || thread::current().name().map(str::to_owned))
            .unwrap();
        assert!(name.blocking_recv().unwrap().unwrap().starts_with("tokenize-"));
    }

    type Held = (Arc<Threads>, oneshot::Receiver<()>, Arc<Barrier>);

    /// One thread, which works until the barrier is reached.
    fn held_up(limit: usize) -> Held {
        let threads = Threads::start(1, limit).unwrap();
        let (begun, barrier) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&barrier));
        let held = threads.do_by(later(), move || {
            tell.wait();
            wait.wait();
        });
        begun.wait();
        (threads, held.unwrap(), barrier)
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let (threads, first, barrier) = held_up(1);
        let second = threads.do_by(later(), || 2).unwrap();
        assert!(threads.do_by(later(), || 3).is_err());
        barrier.wait();
        first.blocking_recv().unwrap();
        assert_eq!(second.blocking_recv().unwrap(), 2);
    }

    #[test]
    fn what_is_too_late_or_awaited_by_nobody_is_not_done() {
        let (threads, first, barrier) = held_up(4);
        let late = threads
            .do_by(Instant::now(), || panic!("it is too late"))
            .unwrap();
        let left = threads.do_by(later(), || panic!("nobody waits for it")).unwrap();
        drop(left);
        let last = threads.do_by(later(), || 4).unwrap();
        barrier.wait();
        first.blocking_recv().unwrap();
        let late: Result<(), _> = late.blocking_recv();
        assert!(late.is_err());
        assert_eq!(last.blocking_recv().unwrap(), 4);
    }
}
