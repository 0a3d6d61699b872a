//! Threads for prompts that would hold up others where they came in: a few, with a queue that has an end, in which clients take turns
//! (`turns.rs`). Who waits for an answer no more is not served.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;

use super::PromptSender;
use super::turns::{Queued, Turns};

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
}

#[derive(Debug)]
struct Queue {
    turns: Turns<PromptSender, Job>,
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
    Never(NoTurn),
}

/// Why a job is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// Its time was up before.
    TooLate,
    /// It made room for another client's.
    GaveWay,
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
                    turns: Turns::new(limit),
                    has_ended: false,
                }),
                bell: Condvar::new(),
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

    /// Does `work` on one of them, when its client's turn has come. No answer comes where `work` panicked.
    pub(super) fn do_by<T: Send + 'static>(
        &self,
        (sender, deadline): (PromptSender, Instant),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, NoTurn>>, QueueFull> {
        let (done, waiting) = oneshot::channel();
        let work = Box::new(move |turn| {
            let _ = match turn {
                Turn::Now if done.is_closed() => return,
                Turn::Now => done.send(Ok(work())),
                Turn::Never(why) => done.send(Err(why)),
            };
        });
        let queued = self.shared.lock().turns.push(sender, Job { deadline, work });
        match queued {
            Queued::Waits => {}
            Queued::InPlaceOf(other) => (other.work)(Turn::Never(NoTurn::GaveWay)),
            Queued::Full(_) => return Err(QueueFull),
        }
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
                Turn::Never(NoTurn::TooLate)
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

    fn of(tenant: &str) -> (PromptSender, Instant) {
        let sender = PromptSender::Tenant(tenant.into());
        (sender, Instant::now() + Duration::from_secs(60))
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

    /// One thread, which works until the barrier is reached.
    fn held_up(limit: usize) -> Held {
        let threads = Threads::start(1, limit).unwrap();
        let (begun, barrier) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&barrier));
        let held = threads.do_by(of("held"), move || {
            tell.wait();
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
        let ask = |tenant: &'static str| {
            let done = Arc::clone(&done);
            let work = move || done.lock().unwrap().push(tenant);
            threads.do_by(of(tenant), work).unwrap()
        };
        let mut flood: Vec<_> = (0..50).map(|_| ask("flood")).collect();
        let other = ask("other");
        let last = flood.pop().unwrap();
        barrier.wait();
        last.blocking_recv().unwrap().unwrap();
        let done = done.lock().unwrap();
        // One of the flood was before it.
        assert_eq!(done[..3], ["flood", "other", "flood"]);
        drop(other);
    }

    #[test]
    fn what_is_too_late_or_awaited_by_nobody_is_not_done() {
        let (threads, first, barrier) = held_up(4);
        let late = threads
            .do_by((of("a").0, Instant::now()), || panic!("it is too late"))
            .unwrap();
        let left = threads.do_by(of("a"), || panic!("nobody waits for it")).unwrap();
        drop(left);
        let last = threads.do_by(of("a"), || 4).unwrap();
        barrier.wait();
        first.blocking_recv().unwrap().unwrap();
        let late: Result<(), _> = late.blocking_recv().unwrap();
        assert_eq!(late, Err(NoTurn::TooLate));
        assert_eq!(last.blocking_recv().unwrap(), Ok(4));
    }
}
