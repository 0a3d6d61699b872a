//! Steps of a mock engine. Continuous batching generates a token for every running request in each step, so the streams
//! of an engine write their tokens together.

use std::time::{Duration, Instant};

/// Clock of an engine's steps, which last as long as the pause between two tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepClock {
    first: Instant,
}

impl StepClock {
    /// Creates the clock of engine `index` of `count`. The engines' steps are spread evenly over a pause.
    pub(super) fn new(now: Instant, index: u16, count: u16, pause: Duration) -> Self {
        Self {
            first: now + pause * u32::from(index) / u32::from(count.max(1)),
        }
    }

    /// Returns the time of the next step after `now`.
    pub(super) fn after(self, now: Instant, pause: Duration) -> Instant {
        if now < self.first || pause.is_zero() {
            return self.first.max(now);
        }
        let into = (now - self.first).as_nanos() % pause.as_nanos();
        now + pause - Duration::from_nanos(u64::try_from(into).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    #[test]
    fn streams_of_one_engine_share_its_steps_whenever_they_begin() {
        let now = Instant::now();
        let clock = StepClock::new(now, 1, 4, PAUSE);
        let step = now + Duration::from_micros(2_500);
        assert_eq!(clock.after(now, PAUSE), step);
        assert_eq!(clock.after(now + Duration::from_millis(3), PAUSE), step + PAUSE);
        assert_eq!(clock.after(now + Duration::from_millis(12), PAUSE), step + PAUSE);
        assert_eq!(clock.after(step, PAUSE), step + PAUSE);
    }

    #[test]
    fn a_stream_without_a_pause_is_always_due() {
        let now = Instant::now();
        let clock = StepClock::new(now, 0, 1, Duration::ZERO);
        assert_eq!(clock.after(now + PAUSE, Duration::ZERO), now + PAUSE);
    }
}
