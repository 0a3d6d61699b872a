//! Streaks of failures that hide the workers' caches from policies. Each streak has its last error, for the log and the
//! status page.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A streak is over after so many successes in a row ...
const CURED_AFTER: u32 = 32;
/// ... or after this time without a failure.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Longest error and name that are kept, in bytes.
const LONGEST_TEXT: usize = 256;

/// Streak of failures of one kind.
#[derive(Debug, Default)]
pub(crate) struct FailureStreak {
    /// `true` during a streak. Without one, a success needs no lock.
    is_active: AtomicBool,
    streak: Mutex<Option<OpenStreak>>,
}

#[derive(Debug)]
struct OpenStreak {
    began: Instant,
    last: Instant,
    failures: u64,
    successes: u64,
    in_a_row: u32,
    /// Subject of the last failure (its model or worker), and its error.
    subject: Box<str>,
    error: Box<str>,
}

/// Report of a streak of failures at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreakReport {
    /// Failures since the streak began.
    pub failures: u64,
    /// Failures and successes since the streak began.
    pub total: u64,
    /// The model or worker of the last failure.
    pub subject: Box<str>,
    /// The last error; never a prompt.
    pub error: Box<str>,
    /// Time since the first failure.
    pub lasted: Duration,
}

impl FailureStreak {
    /// Records a failure that concerns this model or worker.
    pub(crate) fn failed(&self, subject: &str, error: &str) {
        self.failed_at(subject, error, Instant::now());
    }

    /// Records a success of this model or worker.
    pub(crate) fn succeeded(&self, subject: &str) {
        if !self.is_active.load(Ordering::Relaxed) {
            return;
        }
        let mut current = self.lock();
        let Some(streak) = current.as_mut() else { return };
        streak.successes += 1;
        // Successes of other models or workers do not end the streak of this one.
        if *streak.subject == *cut(subject) {
            streak.in_a_row += 1;
        }
        if streak.in_a_row >= CURED_AFTER {
            *current = None;
            self.is_active.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the streak, while it lasts.
    pub(crate) fn report(&self) -> Option<StreakReport> {
        self.report_at(Instant::now())
    }

    fn failed_at(&self, subject: &str, error: &str, now: Instant) {
        let mut current = self.lock();
        let streak = current.take().filter(|streak| streak.goes_on(now));
        let (failures, successes) = streak
            .as_ref()
            .map_or((0, 0), |streak| (streak.failures, streak.successes));
        *current = Some(OpenStreak {
            began: streak.as_ref().map_or(now, |streak| streak.began),
            last: now,
            failures: failures + 1,
            successes,
            in_a_row: 0,
            subject: cut(subject).into(),
            error: cut(error).into(),
        });
        self.is_active.store(true, Ordering::Relaxed);
    }

    fn report_at(&self, now: Instant) -> Option<StreakReport> {
        if !self.is_active.load(Ordering::Relaxed) {
            return None;
        }
        let mut current = self.lock();
        if !current.as_ref()?.goes_on(now) {
            *current = None;
            self.is_active.store(false, Ordering::Relaxed);
            return None;
        }
        current.as_ref().map(|streak| StreakReport {
            failures: streak.failures,
            total: streak.failures + streak.successes,
            subject: streak.subject.clone(),
            error: streak.error.clone(),
            lasted: now.saturating_duration_since(streak.began),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenStreak>> {
        self.streak.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStreak {
    fn goes_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < FORGOTTEN_AFTER
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT.min(text.len()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_counts_failures_among_successes_and_keeps_the_last_error() {
        let streak = FailureStreak::default();
        streak.succeeded("m");
        assert_eq!(streak.report(), None);
        streak.failed("m", "first");
        streak.succeeded("m");
        streak.failed("n", "second");
        let report = streak.report().unwrap();
        assert_eq!((report.failures, report.total), (2, 3));
        assert_eq!((&*report.subject, &*report.error), ("n", "second"));
    }

    #[test]
    fn successes_in_a_row_of_the_same_subject_end_a_spell() {
        let streak = FailureStreak::default();
        streak.failed("m", "no");
        for _ in 0..10 * CURED_AFTER {
            streak.succeeded("another");
        }
        assert!(streak.report().is_some());
        for _ in 0..CURED_AFTER {
            streak.succeeded("m");
        }
        assert_eq!(streak.report(), None);
    }

    #[test]
    fn a_spell_without_a_failure_for_a_minute_is_over() {
        let (streak, now) = (FailureStreak::default(), Instant::now());
        streak.failed_at("m", "no", now);
        assert!(streak.report_at(now + Duration::from_secs(59)).is_some());
        assert_eq!(streak.report_at(now + FORGOTTEN_AFTER), None);
        streak.failed_at("m", "no", now + FORGOTTEN_AFTER);
        assert_eq!(streak.report_at(now + FORGOTTEN_AFTER).unwrap().failures, 1);
    }

    #[test]
    fn long_texts_are_cut() {
        let streak = FailureStreak::default();
        streak.failed(&"ä".repeat(1_000), &"ß".repeat(1_000));
        let report = streak.report().unwrap();
        assert!(report.subject.len() <= LONGEST_TEXT && report.error.len() <= LONGEST_TEXT);
    }
}
