//! Cost model of a worker: predicted times of requests in milliseconds, fitted to its past while it serves, without a
//! profile.
//!
//! Three lines, each with its own samples:
//! - *prefill*: the time from dispatch to first token, over the tokens to be computed (its own and those of prompts
//!   that wait there before it) and the cached ones;
//! - *transfer*: the same at a decode worker whose prompt was computed elsewhere, over the prompt's tokens;
//! - *tbt*, the time between tokens: over the requests decoding there and the prompt tokens they hold.
//!
//! Routers of one fleet exchange samples: each takes its newest ones and learns those of the others.
//!
//! A line is unknown before `ENOUGH` samples. Samples are taken under a lock, once or twice a request. A reader loads
//! atomics, and may mix two fits that differ by one sample.

mod fetched;
mod fit;
mod reading;
mod sample;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::fetched::FetchedShare;
use self::fit::Fit;
pub use self::reading::CostReading;
use self::reading::{UNIT, predict, thousands};
use self::sample::KeptSamples;
pub use self::sample::{CostLine, CostSample};

/// Samples before a line is believed.
const ENOUGH: usize = 16;
/// Weight of the newest error in the average.
const ERROR_SHARE: f64 = 1.0 / 32.0;

/// The lines of one worker.
#[derive(Debug, Default)]
pub struct CostModel {
    prefill: Line<3>,
    transfer: Line<2>,
    tbt: Line<3>,
    fetched: FetchedShare,
    /// Own samples of the fetched share.
    kept_fetched: Mutex<KeptSamples>,
}

/// Recent errors of the predictions: mean of |predicted - measured| / measured; NaN while nothing is predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostErrors {
    /// Error of the time to first token where the worker computes the prompt.
    pub prefill: f64,
    /// Error of the time to first token where the worker fetches the prompt.
    pub transfer: f64,
    /// Error of the time between tokens.
    pub tbt: f64,
}

impl CostModel {
    /// Records a computed prompt: first token `took` after the dispatch, when `ahead` tokens waited there to be
    /// computed.
    pub(crate) fn prefilled(&self, uncached: u32, cached: u32, ahead: u64, took: Duration) {
        let work = thousands(u64::from(uncached).saturating_add(ahead));
        self.prefill
            .learn_own(&[1.0, work, thousands(cached.into())], millis(took));
    }

    /// Records the transfer of a prompt computed elsewhere: first token `took` after the dispatch.
    pub(crate) fn transferred(&self, prompt: u32, took: Duration) {
        self.transfer
            .learn_own(&[1.0, thousands(prompt.into())], millis(took));
    }

    /// Records an answer with so many cached prompt tokens: the worker held `own` of them, another worker `best`.
    pub(crate) fn prompt_cached(&self, own: u32, best: u32, cached: u64) {
        self.fetched.learn(own, best, cached);
        let sample = [own.into(), best.into(), cached as f64];
        lock(&self.kept_fetched).add(sample);
    }

    /// Takes the newest own samples, for the other routers. At most eight of each line are kept.
    pub fn take_samples(&self, mut visit: impl FnMut(CostSample)) {
        self.prefill.take_samples(CostLine::Prefill, &mut visit);
        self.transfer.take_samples(CostLine::Transfer, &mut visit);
        self.tbt.take_samples(CostLine::Decode, &mut visit);
        lock(&self.kept_fetched).take(CostLine::Fetched, &mut visit);
    }

    /// Learns a sample of another router.
    pub(crate) fn learn_elsewhere(&self, sample: &CostSample) {
        let [first, second, last] = sample.numbers.map(f64::from);
        match sample.line {
            CostLine::Prefill => self.prefill.learn(&[1.0, first, second], last),
            CostLine::Transfer => self.transfer.learn(&[1.0, first], last),
            CostLine::Decode => self.tbt.learn(&[1.0, first, second], last),
            CostLine::Fetched => self.fetched.learn(first as u32, second as u32, last as u64),
        }
    }

    /// Records a request that got a token every `between`, while so many were decoding that held so many prompt tokens.
    pub(crate) fn decoded(&self, decoding: f64, resident: f64, between: Duration) {
        self.tbt
            .learn_own(&[1.0, decoding, resident / UNIT], millis(between));
    }

    /// Returns the coefficients now. A reading may mix two fits.
    #[must_use]
    #[inline]
    pub fn read(&self) -> CostReading {
        CostReading {
            prefill: self.prefill.read(),
            transfer: self.transfer.read(),
            tbt: self.tbt.read(),
            fetched_share: self.fetched.get(),
        }
    }

    /// Error of the prediction.
    #[must_use]
    pub fn errors(&self) -> CostErrors {
        CostErrors {
            prefill: self.prefill.error(),
            transfer: self.transfer.error(),
            tbt: self.tbt.error(),
        }
    }
}

/// Fit that is read without its lock.
#[derive(Debug)]
struct Line<const N: usize> {
    fit: Mutex<Fit<N>>,
    kept: Mutex<KeptSamples>,
    /// Bits of f64, NaN while unknown.
    coefficients: [AtomicU64; N],
    error: AtomicU64,
}

impl<const N: usize> Default for Line<N> {
    fn default() -> Self {
        let unknown = || AtomicU64::new(f64::NAN.to_bits());
        Self {
            fit: Mutex::default(),
            kept: Mutex::default(),
            coefficients: std::array::from_fn(|_| unknown()),
            error: unknown(),
        }
    }
}

impl<const N: usize> Line<N> {
    /// Learns a sample, and keeps it for the other routers.
    fn learn_own(&self, point: &[f64; N], value: f64) {
        let slope = |at: usize| point.get(at).copied().unwrap_or_default();
        lock(&self.kept).add([slope(1), slope(2), value]);
        self.learn(point, value);
    }

    fn take_samples(&self, line: CostLine, visit: &mut impl FnMut(CostSample)) {
        lock(&self.kept).take(line, visit);
    }

    fn learn(&self, point: &[f64; N], value: f64) {
        let predicted = predict(&self.read(), point);
        if !predicted.is_nan() && value > 0.0 {
            let off = (predicted - value).abs() / value;
            let before = self.error();
            let average = match before.is_nan() {
                true => off,
                false => before + (off - before) * ERROR_SHARE,
            };
            self.error.store(average.to_bits(), Ordering::Relaxed);
        }
        let mut fit = lock(&self.fit);
        if fit.learn(point, value) && fit.samples() >= ENOUGH {
            for (shown, coefficient) in self.coefficients.iter().zip(fit.coefficients()) {
                shown.store(coefficient.to_bits(), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn read(&self) -> [f64; N] {
        let coefficient = |at: usize| f64::from_bits(self.coefficients[at].load(Ordering::Relaxed));
        std::array::from_fn(coefficient)
    }

    fn error(&self) -> f64 {
        f64::from_bits(self.error.load(Ordering::Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_nothing_before_enough_samples() {
        let model = CostModel::default();
        for at in 1..=ENOUGH as u32 {
            assert!(model.read().prefill_ms(100, 0).is_nan() && model.read().token_ms().is_nan());
            model.prefilled(100 * at, 0, 0, Duration::from_millis(10 + u64::from(at)));
        }
        assert!(!model.read().prefill_ms(100, 0).is_nan());
        assert!(model.read().transfer_ms(100).is_nan() && model.read().tbt_ms(1, 0).is_nan());
        assert!(model.errors().prefill.is_nan());
    }

    #[test]
    fn distinguishes_its_own_tokens_cached_ones_and_those_ahead() {
        let model = CostModel::default();
        for at in 0..400_u32 {
            let (uncached, cached) = (at * 37 % 4_000, at * 101 % 8_000);
            let ahead = u64::from(at * 53 % 6_000);
            // 15 ms, 100 ms a thousand tokens, 5 ms a thousand cached ones.
            let us = 15_000 + 100 * (u64::from(uncached) + ahead) + 5 * u64::from(cached);
            model.prefilled(uncached, cached, ahead, Duration::from_micros(us));
        }
        let near = |value: f64, expected: f64| (value - expected).abs() < 0.02 * expected;
        assert!(
            near(model.read().prefill_ms(2_000, 4_000), 235.0),
            "{}",
            model.read().prefill_ms(2_000, 4_000)
        );
        assert!(near(model.read().token_ms(), 0.1), "{}", model.read().token_ms());
        assert!(model.errors().prefill < 0.05, "{}", model.errors().prefill);
    }

    #[test]
    fn samples_of_another_router_teach_what_the_own_ones_do() {
        let (own, other) = (CostModel::default(), CostModel::default());
        let mut moved = 0;
        for at in 0..200_u32 {
            let tokens = at * 37 % 4_000;
            own.prefilled(tokens, 500, 100, Duration::from_millis(15 + u64::from(tokens)));
            own.transferred(tokens, Duration::from_millis(u64::from(tokens)));
            own.decoded(f64::from(at % 9), 5_000.0, Duration::from_millis(20));
            own.prompt_cached(1_000, 3_000, 2_000);
            if at % 8 == 7 {
                own.take_samples(|sample| {
                    moved += 1;
                    other.learn_elsewhere(&sample);
                });
            }
        }
        assert_eq!(moved, 4 * 200);
        own.take_samples(|_| panic!("they were taken"));
        other.take_samples(|_| panic!("those of another router are not its own"));
        let near = |one: f64, two: f64| (one - two).abs() < 1e-3 * two;
        assert!(near(
            other.read().prefill_ms(2_000, 500),
            own.read().prefill_ms(2_000, 500)
        ));
        assert!(near(
            other.read().transfer_ms(2_000),
            own.read().transfer_ms(2_000)
        ));
        assert!(near(other.read().tbt_ms(4, 5_000), own.read().tbt_ms(4, 5_000)));
        assert_eq!(other.read().fetched_share(), 0.5);
    }

    #[test]
    fn only_the_newest_samples_are_kept_for_other_routers() {
        let model = CostModel::default();
        for at in 0..1_000_u32 {
            model.prefilled(at, 0, 0, Duration::from_millis(1));
        }
        let mut works = Vec::new();
        model.take_samples(|sample| works.push((sample.numbers[0] * 1_000.0).round() as u32));
        works.sort_unstable();
        assert_eq!(works, (992..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_prediction_is_never_below_0() {
        let model = CostModel::default();
        for at in 0..100_u32 {
            model.decoded(
                f64::from(at % 9),
                0.0,
                Duration::from_millis(u64::from(at % 9) * 3),
            );
        }
        assert!(model.read().tbt_ms(0, 0) >= 0.0);
        assert!(
            (model.read().tbt_ms(8, 0) - 24.0).abs() < 1.0,
            "{}",
            model.read().tbt_ms(8, 0)
        );
    }
}
