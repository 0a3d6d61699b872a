//! Stage times of a request: the durations of the steps before its answer.
//!
//! They are taken of every request. The clock is a few numbers in the request's own state, which its attempts add to
//! without a lock. The metrics, the access log and traces read the same times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// Reception of the body.
    Read,
    /// Tokenization of the prompt.
    Tokens,
    /// Admission, with all waits in the queue.
    Queue,
    /// Decisions.
    Decide,
    /// From the dispatch to a connection, kept or new. Only of the worker that answers.
    Connect,
    /// From the connection to the head of the worker's answer.
    FirstByte,
}

/// Every stage in the order of its discriminant, with its label.
pub(crate) const STAGES: [(RequestStage, &str); 6] = [
    (RequestStage::Read, "read"),
    (RequestStage::Tokens, "tokens"),
    (RequestStage::Queue, "queue"),
    (RequestStage::Decide, "decide"),
    (RequestStage::Connect, "connect"),
    (RequestStage::FirstByte, "first-byte"),
];

/// Value of a time that was not taken.
const NEVER: u64 = u64::MAX;

/// Clock of a request's stages. Its attempts share it.
#[derive(Debug)]
pub(crate) struct StageClock {
    arrived: Instant,
    /// Nanoseconds of each stage.
    spent: [AtomicU64; STAGES.len()],
    /// Nanoseconds from the arrival to the first dispatch, without the reception of the body and the queue.
    own: AtomicU64,
}

/// Times that a clock has taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageTimes {
    spent: [u64; STAGES.len()],
    own: u64,
}

impl StageClock {
    /// Starts at the arrival of a request.
    pub(crate) fn start(arrived: Instant) -> Self {
        Self {
            arrived,
            spent: [const { AtomicU64::new(NEVER) }; STAGES.len()],
            own: AtomicU64::new(NEVER),
        }
    }

    /// Adds a time to a stage. Stages that take place several times are added up.
    pub(crate) fn add(&self, stage: RequestStage, took: Duration) {
        let spent = &self.spent[stage as usize];
        // One task works on a stage at a time.
        let so_far = spent.load(Ordering::Relaxed);
        let so_far = if so_far == NEVER { 0 } else { so_far };
        spent.store(so_far.saturating_add(nanos(took)), Ordering::Relaxed);
    }

    /// Records a dispatch to a worker. Only the first counts.
    pub(crate) fn dispatched(&self, now: Instant) {
        if self.own.load(Ordering::Relaxed) != NEVER {
            return;
        }
        let after = nanos(now.saturating_duration_since(self.arrived));
        let waited = self.so_far(RequestStage::Read) + self.so_far(RequestStage::Queue);
        self.own.store(after.saturating_sub(waited), Ordering::Relaxed);
    }

    /// Returns the times so far.
    pub(crate) fn times(&self) -> StageTimes {
        let mut spent = [NEVER; STAGES.len()];
        for (copy, spent) in spent.iter_mut().zip(&self.spent) {
            *copy = spent.load(Ordering::Relaxed);
        }
        StageTimes {
            spent,
            own: self.own.load(Ordering::Relaxed),
        }
    }

    fn so_far(&self, stage: RequestStage) -> u64 {
        match self.spent[stage as usize].load(Ordering::Relaxed) {
            NEVER => 0,
            spent => spent,
        }
    }
}

impl StageTimes {
    /// Returns the time of a stage. `None` if the request did not get there.
    pub(crate) fn spent(&self, stage: RequestStage) -> Option<Duration> {
        time(self.spent[stage as usize])
    }

    /// Returns the router's own time: from the arrival to the first dispatch, without the reception of the body and the
    /// queue. `None` if the request was not sent to a worker.
    pub(crate) fn own(&self) -> Option<Duration> {
        time(self.own)
    }

    /// Sets the time of a stage that takes place once, after the clock was read.
    pub(crate) fn set(&mut self, stage: RequestStage, took: Duration) {
        self.spent[stage as usize] = nanos(took);
    }
}

fn time(nanos: u64) -> Option<Duration> {
    (nanos != NEVER).then(|| Duration::from_nanos(nanos))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(NEVER - 1, |nanos| nanos.min(NEVER - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_stands_at_its_discriminant() {
        let mut stages = STAGES.iter().enumerate();
        assert!(stages.all(|(at, (stage, _))| *stage as usize == at));
    }

    #[test]
    fn stages_that_did_not_take_place_have_no_time() {
        let times = StageClock::start(Instant::now()).times();
        for (stage, label) in STAGES {
            assert_eq!(times.spent(stage), None, "{label}");
        }
        assert_eq!(times.own(), None);
    }

    #[test]
    fn a_stage_of_several_attempts_is_added_up() {
        let clock = StageClock::start(Instant::now());
        clock.add(RequestStage::Decide, Duration::ZERO);
        assert_eq!(clock.times().spent(RequestStage::Decide), Some(Duration::ZERO));
        clock.add(RequestStage::Decide, Duration::from_millis(2));
        clock.add(RequestStage::Decide, Duration::from_millis(3));
        assert_eq!(
            clock.times().spent(RequestStage::Decide),
            Some(Duration::from_millis(5))
        );
    }

    #[test]
    fn the_routers_own_time_ends_with_the_first_dispatch_and_has_neither_body_nor_queue() {
        let arrived = Instant::now();
        let clock = StageClock::start(arrived);
        clock.add(RequestStage::Read, Duration::from_millis(10));
        clock.add(RequestStage::Queue, Duration::from_millis(20));
        clock.add(RequestStage::Decide, Duration::from_millis(1));
        clock.dispatched(arrived + Duration::from_millis(33));
        clock.add(RequestStage::Queue, Duration::from_millis(500));
        clock.dispatched(arrived + Duration::from_millis(900));
        assert_eq!(clock.times().own(), Some(Duration::from_millis(3)));
    }
}
