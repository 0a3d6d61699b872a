//! Moving statistics of times. A sample is taken once a request; a reader loads one atomic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The newest sample weighs 1/8 in an average, as in TCP's round-trip estimate (RFC 6298).
const NEWEST: f64 = 1.0 / 8.0;
/// Samples a quantile looks at.
const WINDOW: usize = 64;
/// Samples before a value is known.
const ENOUGH: usize = 16;
/// Quantile: the share of the samples that are not above it.
const SHARE: f64 = 0.9;

/// A moving average.
#[derive(Debug, Default)]
pub(super) struct Average(Shown);

impl Average {
    pub(super) fn add(&self, time: Duration) {
        let (sample, before) = (millis(time), self.ms());
        // Two samples at once: one is lost, which an average can bear.
        self.0.show(match before.is_nan() {
            true => sample,
            false => before + (sample - before) * NEWEST,
        });
    }

    /// Milliseconds; NaN before the first sample.
    #[inline]
    pub(super) fn ms(&self) -> f64 {
        self.0.ms()
    }
}

/// The 0.9 quantile of the last samples.
#[derive(Debug, Default)]
pub(super) struct Quantile {
    recent: Mutex<Recent>,
    shown: Shown,
}

#[derive(Debug, Default)]
struct Recent {
    /// Milliseconds; the newest overwrite the oldest.
    samples: Vec<f64>,
    seen: usize,
}

impl Quantile {
    pub(super) fn add(&self, time: Duration) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (sample, place) = (millis(time), recent.seen % WINDOW);
        match recent.samples.get_mut(place) {
            Some(oldest) => *oldest = sample,
            None => recent.samples.push(sample),
        }
        recent.seen += 1;
        if recent.samples.len() >= ENOUGH {
            let mut samples = recent.samples.clone();
            let place = (samples.len() as f64 * SHARE).ceil() as usize - 1;
            self.shown
                .show(*samples.select_nth_unstable_by(place, f64::total_cmp).1);
        }
    }

    /// Milliseconds; NaN before there are enough samples.
    pub(super) fn ms(&self) -> f64 {
        self.shown.ms()
    }
}

/// Bits of an f64 in milliseconds; 0 while nothing is known.
#[derive(Debug, Default)]
struct Shown(AtomicU64);

impl Shown {
    fn show(&self, ms: f64) {
        self.0
            .store(ms.max(f64::MIN_POSITIVE).to_bits(), Ordering::Relaxed);
    }

    #[inline]
    fn ms(&self) -> f64 {
        match self.0.load(Ordering::Relaxed) {
            0 => f64::NAN,
            bits => f64::from_bits(bits),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_needs_samples_and_forgets_the_old_ones() {
        let quantile = Quantile::default();
        let add = |from: u64, samples: u64| {
            (from..from + samples).for_each(|ms| quantile.add(Duration::from_millis(ms)));
        };
        add(1, 15);
        assert!(quantile.ms().is_nan());
        add(16, 5);
        assert_eq!(quantile.ms(), 18.0, "18 of 20 are not above it");
        add(1_001, WINDOW as u64);
        assert_eq!(quantile.ms(), 1_058.0, "58 of 64");
    }
}
