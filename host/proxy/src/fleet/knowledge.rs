//! Spells of missing cache knowledge: failures that hide the workers' caches from policies. Each spell has its
//! last error, for the log and the status page.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::fleet::latency::TokenizerLatency;

/// A spell is over after so many successes in a row ...
const CURED_AFTER: u32 = 32;
/// ... or after this time without a failure.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Longest error and name that are kept, in bytes.
const LONGEST_TEXT: usize = 256;

/// Failure spells and latencies of a pool, over all snapshots.
#[derive(Debug, Default)]
pub(crate) struct PoolKnowledge {
    /// Answers of the tokenizers.
    pub(crate) latency: TokenizerLatency,
    /// Prompts whose tokens were not known in time.
    pub(crate) timeouts: FailureSpell,
    /// Prompts whose tokens could not be made, or not be had from a worker.
    pub(crate) failures: FailureSpell,
    /// Prefill answers without the parameters of a handshake.
    pub(crate) handovers: FailureSpell,
}

/// Spell of failures of one kind.
#[derive(Debug, Default)]
pub(crate) struct FailureSpell {
    /// `true` while a spell goes on. Without one a success needs no look.
    is_active: AtomicBool,
    spell: Mutex<Option<Spell>>,
}

#[derive(Debug)]
struct Spell {
    began: Instant,
    last: Instant,
    failures: u64,
    successes: u64,
    in_a_row: u32,
    /// Subject of the last failure (its model or worker), and its error.
    subject: Box<str>,
    error: Box<str>,
}

/// Report of a spell of failures at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpellReport {
    /// Failures since the spell began.
    pub failures: u64,
    /// Failures and successes since the spell began.
    pub total: u64,
    /// The model or worker of the last failure.
    pub subject: Box<str>,
    /// The last error; never a prompt.
    pub error: Box<str>,
    /// Time since the first failure.
    pub lasted: Duration,
}

impl FailureSpell {
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
        let Some(spell) = current.as_mut() else { return };
        spell.successes += 1;
        // Successes of other models or workers do not end the spell of this one.
        if *spell.subject == *cut(subject) {
            spell.in_a_row += 1;
        }
        if spell.in_a_row >= CURED_AFTER {
            *current = None;
            self.is_active.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the spell, while it lasts.
    pub(crate) fn report(&self) -> Option<SpellReport> {
        self.report_at(Instant::now())
    }

    fn failed_at(&self, subject: &str, error: &str, now: Instant) {
        let mut current = self.lock();
        let spell = current.take().filter(|spell| spell.goes_on(now));
        let (failures, successes) = spell
            .as_ref()
            .map_or((0, 0), |spell| (spell.failures, spell.successes));
        *current = Some(Spell {
            began: spell.as_ref().map_or(now, |spell| spell.began),
            last: now,
            failures: failures + 1,
            successes,
            in_a_row: 0,
            subject: cut(subject).into(),
            error: cut(error).into(),
        });
        self.is_active.store(true, Ordering::Relaxed);
    }

    fn report_at(&self, now: Instant) -> Option<SpellReport> {
        if !self.is_active.load(Ordering::Relaxed) {
            return None;
        }
        let mut current = self.lock();
        if !current.as_ref()?.goes_on(now) {
            *current = None;
            self.is_active.store(false, Ordering::Relaxed);
            return None;
        }
        current.as_ref().map(|spell| SpellReport {
            failures: spell.failures,
            total: spell.failures + spell.successes,
            subject: spell.subject.clone(),
            error: spell.error.clone(),
            lasted: now.saturating_duration_since(spell.began),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Spell>> {
        self.spell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spell {
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
        let spell = FailureSpell::default();
        spell.succeeded("m");
        assert_eq!(spell.report(), None);
        spell.failed("m", "first");
        spell.succeeded("m");
        spell.failed("n", "second");
        let report = spell.report().unwrap();
        assert_eq!((report.failures, report.total), (2, 3));
        assert_eq!((&*report.subject, &*report.error), ("n", "second"));
    }

    #[test]
    fn successes_in_a_row_of_the_same_subject_end_a_spell() {
        let spell = FailureSpell::default();
        spell.failed("m", "no");
        for _ in 0..10 * CURED_AFTER {
            spell.succeeded("another");
        }
        assert!(spell.report().is_some());
        for _ in 0..CURED_AFTER {
            spell.succeeded("m");
        }
        assert_eq!(spell.report(), None);
    }

    #[test]
    fn a_spell_without_a_failure_for_a_minute_is_over() {
        let (spell, now) = (FailureSpell::default(), Instant::now());
        spell.failed_at("m", "no", now);
        assert!(spell.report_at(now + Duration::from_secs(59)).is_some());
        assert_eq!(spell.report_at(now + FORGOTTEN_AFTER), None);
        spell.failed_at("m", "no", now + FORGOTTEN_AFTER);
        assert_eq!(spell.report_at(now + FORGOTTEN_AFTER).unwrap().failures, 1);
    }

    #[test]
    fn long_texts_are_cut() {
        let spell = FailureSpell::default();
        spell.failed(&"ä".repeat(1_000), &"ß".repeat(1_000));
        let report = spell.report().unwrap();
        assert!(report.subject.len() <= LONGEST_TEXT && report.error.len() <= LONGEST_TEXT);
    }
}
