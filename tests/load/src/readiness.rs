//! Level-triggered epoll with one precise timer: which of the watched sockets can go on. Knows no protocol.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::thread::sched_yield;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The key that no watched socket may have: it belongs to the timer.
const TIMER: u64 = u64::MAX;

const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Most events per wait; further ones come with the next.
const BATCH: usize = 256;

/// Behaviour of a thread while no socket is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep in the kernel. The write that makes a socket ready also wakes the thread, at the writer's expense.
    Sleep,
    /// Poll, with a yield to other threads of the core in between. A writer never wakes it.
    Poll,
}

impl Waiting {
    /// Returns `Poll` if `polls`.
    #[must_use]
    pub fn poll_if(polls: bool) -> Self {
        if polls { Self::Poll } else { Self::Sleep }
    }
}

/// A set of watched sockets.
pub(crate) struct Readiness {
    waiting: Waiting,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Option<Instant>,
    events: Vec<epoll::Event>,
}

impl Readiness {
    /// Returns an empty set.
    pub(crate) fn new(waiting: Waiting) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // A timer of its own because epoll's time-outs are rounded up to milliseconds.
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(
            &epoll,
            &timer,
            epoll::EventData::new_u64(TIMER),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            waiting,
            epoll,
            timer,
            armed: None,
            events: Vec::with_capacity(BATCH),
        })
    }

    /// Watches a socket for input until it is closed; `key` names it and is not `u64::MAX`.
    pub(crate) fn watch(&self, socket: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(key),
            epoll::EventFlags::IN,
        )?)
    }

    /// Watches a socket, already watched, for room to write as well, or no longer.
    pub(crate) fn watch_room(&self, socket: impl AsFd, key: u64, wanted: bool) -> io::Result<()> {
        let flags = if wanted {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        Ok(epoll::modify(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(key),
            flags,
        )?)
    }

    /// Waits until a socket is ready or `until` has come, and puts the keys of the ready ones into `ready`.
    pub(crate) fn wait(&mut self, until: Option<Instant>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        match self.waiting {
            Waiting::Sleep => self.sleep(until)?,
            Waiting::Poll => self.poll(until)?,
        }
        let mut rang = false;
        for event in &self.events {
            let data = event.data;
            match data.u64() {
                TIMER => rang = true,
                key => ready.push(key),
            }
        }
        if rang {
            // Setting the timer clears its readiness.
            self.arm(None)?;
        }
        Ok(())
    }

    fn sleep(&mut self, until: Option<Instant>) -> io::Result<()> {
        if until.is_some() && until != self.armed {
            self.arm(until)?;
        }
        self.collect(None)
    }

    fn poll(&mut self, until: Option<Instant>) -> io::Result<()> {
        loop {
            self.collect(Some(&NO_TIME))?;
            if !self.events.is_empty() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            sched_yield();
        }
    }

    /// Takes the events that are there, after at most `timeout`.
    fn collect(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut self.events),
            timeout,
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn arm(&mut self, at: Option<Instant>) -> io::Result<()> {
        // A zero would switch the timer off instead of letting it ring at once.
        let wait = at.map(|at| {
            at.saturating_duration_since(Instant::now())
                .max(Duration::from_nanos(1))
        });
        let value = Timespec::try_from(wait.unwrap_or_default()).map_err(io::Error::other)?;
        let once = Itimerspec {
            it_interval: NO_TIME,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.armed = at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_at_the_time_requested_although_no_socket_is_ready() {
        for waiting in [Waiting::Sleep, Waiting::Poll] {
            let mut readiness = Readiness::new(waiting).unwrap();
            let mut ready = vec![7];
            for _ in 0..3 {
                let until = Instant::now() + Duration::from_micros(300);
                readiness.wait(Some(until), &mut ready).unwrap();
                assert!(Instant::now() >= until);
                assert!(ready.is_empty());
            }
        }
    }

    #[test]
    fn a_time_that_has_passed_does_not_block() {
        for waiting in [Waiting::Sleep, Waiting::Poll] {
            let mut readiness = Readiness::new(waiting).unwrap();
            readiness.wait(Some(Instant::now()), &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn a_ready_socket_ends_the_wait() {
        for waiting in [Waiting::Sleep, Waiting::Poll] {
            let mut readiness = Readiness::new(waiting).unwrap();
            let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
            readiness.watch(&reader, 5).unwrap();
            rustix::io::write(&writer, b"x").unwrap();
            let mut ready = Vec::new();
            readiness.wait(None, &mut ready).unwrap();
            assert_eq!(ready, [5]);
        }
    }
}
