//! Table of a model's frames: the least recently used one gives way to a new one.
//!
//! Clients choose the arguments of the template, and each new frame is probed. So frames are few, and one is replaced
//! only once in a while. A frame has a number that no other frame of the model gets: the states of conversations refer
//! to it, and are not continued once it is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;

/// Most frames of a model.
pub(super) const MOST_FRAMES: usize = 16;
/// Least time between two replaced frames. Each costs some hundred short renderings on a request's thread.
pub(super) const BETWEEN_REPLACED: Duration = Duration::from_secs(10);

/// Frames of a model. Readers take no lock.
#[derive(Debug)]
pub(super) struct FrameTable<F> {
    frames: ArcSwap<Vec<Arc<NumberedFrame<F>>>>,
    changes: Mutex<TableChanges>,
}

/// Frame in the table.
#[derive(Debug)]
pub(crate) struct NumberedFrame<F> {
    pub(crate) number: u32,
    pub(crate) frame: F,
    /// Second of the last use.
    used: AtomicU64,
}

#[derive(Debug, Default)]
struct TableChanges {
    /// Number of the next frame.
    next: u32,
    /// Second of the last replaced frame.
    replaced: Option<u64>,
}

/// Returns the second of a time.
fn second(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl<F> Default for FrameTable<F> {
    fn default() -> Self {
        Self {
            frames: ArcSwap::default(),
            changes: Mutex::default(),
        }
    }
}

impl<F> FrameTable<F> {
    /// Returns the frame with a number, and marks it as used.
    pub(super) fn by_number(&self, number: u32, now: SystemTime) -> Option<Arc<NumberedFrame<F>>> {
        self.find(now, |frame| frame.number == number)
    }

    /// Returns the frame that fits, and marks it as used.
    pub(super) fn fitting(
        &self,
        now: SystemTime,
        fits: impl Fn(&F) -> bool,
    ) -> Option<Arc<NumberedFrame<F>>> {
        self.find(now, |frame| fits(&frame.frame))
    }

    fn find(
        &self,
        now: SystemTime,
        is_it: impl Fn(&NumberedFrame<F>) -> bool,
    ) -> Option<Arc<NumberedFrame<F>>> {
        let frames = self.frames.load();
        let found = frames.iter().find(|frame| is_it(frame))?;
        found.mark_used(second(now));
        Some(Arc::clone(found))
    }

    /// Takes the turn to add a frame. Returns `false` if another one would have to be replaced too early.
    pub(super) fn admits(&self, now: SystemTime) -> bool {
        let mut changes = self.changes();
        if self.frames.load().len() < MOST_FRAMES {
            return true;
        }
        let now = second(now);
        // Also after a step back of the clock.
        let is_early = |last: u64| (last..last + BETWEEN_REPLACED.as_secs()).contains(&now);
        if changes.replaced.is_some_and(is_early) {
            return false;
        }
        changes.replaced = Some(now);
        true
    }

    /// Adds a frame, in the place of the least recently used one if there is no room. Returns the one that is `same`,
    /// if another thread has added it first.
    pub(super) fn add(
        &self,
        frame: F,
        now: SystemTime,
        same: impl Fn(&F, &F) -> bool,
    ) -> Arc<NumberedFrame<F>> {
        let mut changes = self.changes();
        if let Some(known) = self.fitting(now, |known| same(known, &frame)) {
            return known;
        }
        let added = Arc::new(NumberedFrame {
            number: changes.next,
            frame,
            used: AtomicU64::new(second(now)),
        });
        changes.next = changes.next.wrapping_add(1);
        let mut frames = Vec::clone(&self.frames.load());
        if frames.len() < MOST_FRAMES {
            frames.push(Arc::clone(&added));
        } else if let Some(oldest) = frames
            .iter_mut()
            .min_by_key(|frame| frame.used.load(Ordering::Relaxed))
        {
            *oldest = Arc::clone(&added);
        }
        self.frames.store(Arc::new(frames));
        added
    }

    fn changes(&self) -> MutexGuard<'_, TableChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> NumberedFrame<F> {
    /// Threads share the second, so it is written only if it changes.
    fn mark_used(&self, second: u64) {
        if self.used.load(Ordering::Relaxed) != second {
            self.used.store(second, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: fn(&String, &String) -> bool = |one, other| one == other;

    #[test]
    fn the_frame_that_was_not_used_for_longest_gives_way_once_in_a_while() {
        let table = FrameTable::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let add = |name: &str, seconds| {
            let is_admitted = table.admits(at(seconds));
            is_admitted.then(|| table.add(name.to_owned(), at(seconds), SAME).number)
        };
        let has = |name: &str, seconds| table.fitting(at(seconds), |frame| frame == name).is_some();
        let names: Vec<String> = (0..MOST_FRAMES).map(|number| number.to_string()).collect();
        for (number, name) in (0..).zip(&names) {
            assert_eq!(add(name, 100), Some(number));
        }
        assert!(has("0", 101));
        assert_eq!(add("a", 102), Some(16));
        assert!(has("0", 103), "it was used");
        assert!(!has("1", 103));
        assert!(
            table.by_number(1, at(103)).is_none(),
            "its number is not given again"
        );
        assert_eq!(add("b", 103), None, "too early");
        assert_eq!(add("b", 102 + BETWEEN_REPLACED.as_secs()), Some(17));
        assert_eq!(add("c", 50), Some(18), "the clock went back");
    }

    #[test]
    fn a_key_has_one_frame_whichever_thread_adds_it_first() {
        let table = FrameTable::default();
        let add = || table.add("0".to_owned(), SystemTime::UNIX_EPOCH, SAME).number;
        assert_eq!([add(), add()], [0, 0]);
    }
}
