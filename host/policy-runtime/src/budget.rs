//! Time budget of a call, in CPU time of its thread.
//!
//! Wall time would blame a policy for the operating system's scheduler: on a busy machine 58 of 300,000 harmless calls
//! took over 2 ms (host/adr/0003-policy-runtime.md). The epoch therefore only triggers the check, and the thread's CPU
//! clock decides. No clock is read before the first epoch tick during a call, which saves two readings for calls of
//! microseconds. A call is charged from that tick on, so it may use up to one tick more than its budget.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// Limits of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallBudget {
    /// CPU time of the calling thread.
    pub(crate) cpu: Duration,
    /// Real time, because a request waits.
    pub(crate) wall: Duration,
}

/// Budget of instantiation and configuration, which are rare and may take longer than a decision.
pub(crate) const SETUP: CallBudget = CallBudget {
    cpu: Duration::from_millis(250),
    wall: Duration::from_secs(2),
};

/// Used budget of one call.
#[derive(Debug)]
pub(crate) struct CallMeter {
    budget: CallBudget,
    /// CPU time of the thread and real time at the first tick of this call.
    first_tick: Option<(Duration, Instant)>,
}

/// A call exceeded its budget.
#[derive(Debug, Error)]
pub(crate) enum BudgetOverrun {
    #[error("used {used:?} of CPU time, its budget is {budget:?}")]
    Cpu { used: Duration, budget: Duration },
    #[error("took {used:?}, the limit is {budget:?}")]
    Wall { used: Duration, budget: Duration },
}

impl CallMeter {
    pub(crate) fn new(budget: CallBudget) -> Self {
        Self {
            budget,
            first_tick: None,
        }
    }

    /// Handles an epoch tick during the call.
    pub(crate) fn tick(&mut self) -> Result<(), BudgetOverrun> {
        let (cpu_now, now) = (thread_cpu_time(), Instant::now());
        let Some((cpu_then, then)) = self.first_tick else {
            self.first_tick = Some((cpu_now, now));
            return Ok(());
        };
        let used = cpu_now.saturating_sub(cpu_then);
        if used >= self.budget.cpu {
            let budget = self.budget.cpu;
            return Err(BudgetOverrun::Cpu { used, budget });
        }
        let used = now.duration_since(then);
        if used >= self.budget.wall {
            let budget = self.budget.wall;
            return Err(BudgetOverrun::Wall { used, budget });
        }
        Ok(())
    }
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(cpu: Duration, wall: Duration) -> CallMeter {
        CallMeter::new(CallBudget { cpu, wall })
    }

    #[test]
    fn the_first_tick_is_free_and_starts_the_clock() {
        let mut meter = meter(Duration::ZERO, Duration::ZERO);
        assert!(meter.tick().is_ok());
        assert!(matches!(meter.tick(), Err(BudgetOverrun::Cpu { .. })));
    }

    #[test]
    fn a_preempted_call_is_not_guilty_until_the_wall_limit() {
        let mut meter = meter(Duration::MAX, Duration::ZERO);
        assert!(meter.tick().is_ok());
        assert!(matches!(meter.tick(), Err(BudgetOverrun::Wall { .. })));
    }

    #[test]
    fn cpu_time_that_was_spent_is_charged() {
        let mut meter = meter(Duration::from_millis(2), Duration::MAX);
        assert!(meter.tick().is_ok());
        let start = thread_cpu_time();
        while thread_cpu_time() - start < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(matches!(meter.tick(), Err(BudgetOverrun::Cpu { .. })));
    }
}
