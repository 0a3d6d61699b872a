//! How long a call may take, in the CPU time of its thread.
//!
//! Wall time would blame a policy for the scheduler of the operating system: on a busy machine 58 of 300,000
//! innocent calls passed 2 ms (host/adr/0003-policy-runtime.md). So the epoch only says when to look, and the
//! thread's CPU clock says who is guilty. No clock is read before the first epoch tick falls into a call, which
//! spares the two readings to the calls that take microseconds; a call is charged from that tick on, so it may
//! have up to one tick more than its budget.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// What a call may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// CPU time of the calling thread.
    pub(crate) cpu: Duration,
    /// Real time, for the sake of the request that waits.
    pub(crate) wall: Duration,
}

/// For instantiating and configuring, which may take longer than a decision and happens rarely.
pub(crate) const SETUP: Budget = Budget {
    cpu: Duration::from_millis(250),
    wall: Duration::from_secs(2),
};

/// One call's use of its budget.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Budget,
    /// CPU time of the thread and real time at the first tick of this call.
    first_tick: Option<(Duration, Instant)>,
}

/// A call used more than it may.
#[derive(Debug, Error)]
pub(crate) enum Overrun {
    #[error("used {used:?} of CPU time, its budget is {budget:?}")]
    Cpu { used: Duration, budget: Duration },
    #[error("took {used:?}, the limit is {budget:?}")]
    Wall { used: Duration, budget: Duration },
}

impl Meter {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            first_tick: None,
        }
    }

    /// A tick of the epoch fell into the call.
    pub(crate) fn tick(&mut self) -> Result<(), Overrun> {
        let (cpu_now, now) = (thread_cpu_time(), Instant::now());
        let Some((cpu_then, then)) = self.first_tick else {
            self.first_tick = Some((cpu_now, now));
            return Ok(());
        };
        let used = cpu_now.saturating_sub(cpu_then);
        if used >= self.budget.cpu {
            let budget = self.budget.cpu;
            return Err(Overrun::Cpu { used, budget });
        }
        let used = now.duration_since(then);
        if used >= self.budget.wall {
            let budget = self.budget.wall;
            return Err(Overrun::Wall { used, budget });
        }
        Ok(())
    }
}

/// What the calling thread has computed so far.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(cpu: Duration, wall: Duration) -> Meter {
        Meter::new(Budget { cpu, wall })
    }

    #[test]
    fn the_first_tick_is_free_and_starts_the_clock() {
        let mut meter = meter(Duration::ZERO, Duration::ZERO);
        assert!(meter.tick().is_ok());
        assert!(matches!(meter.tick(), Err(Overrun::Cpu { .. })));
    }

    #[test]
    fn a_preempted_call_is_not_guilty_until_the_wall_limit() {
        let mut meter = meter(Duration::MAX, Duration::ZERO);
        assert!(meter.tick().is_ok());
        assert!(matches!(meter.tick(), Err(Overrun::Wall { .. })));
    }

    #[test]
    fn cpu_time_that_was_spent_is_charged() {
        let mut meter = meter(Duration::from_millis(2), Duration::MAX);
        assert!(meter.tick().is_ok());
        let start = thread_cpu_time();
        while thread_cpu_time() - start < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(matches!(meter.tick(), Err(Overrun::Cpu { .. })));
    }
}
