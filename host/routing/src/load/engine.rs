//! Load report of an engine: it counts the requests of other routers as well. It is kept beside the bookings, with its
//! age.

use std::sync::atomic::{AtomicU64, Ordering};

/// A load report; NaN where the engine reports nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineReport {
    /// Requests being computed.
    pub running: f64,
    /// Requests that wait.
    pub waiting: f64,
    /// Used share of the KV cache, 0 to 1.
    pub kv_usage: f64,
    /// Tokens that the KV cache holds.
    pub kv_tokens: f64,
}

/// Last load report, with its time. Relaxed atomics: a reading may mix two reports, which costs a decision nothing.
#[derive(Debug, Default)]
pub(super) struct LastEngineReport {
    numbers: [AtomicU64; 4],
    /// One more than the millisecond of the report; 0 before the first.
    at: AtomicU64,
}

impl LastEngineReport {
    pub(super) fn set(&self, report: EngineReport, at_ms: u64) {
        let numbers = [report.running, report.waiting, report.kv_usage, report.kv_tokens];
        for (kept, number) in self.numbers.iter().zip(numbers) {
            kept.store(number.to_bits(), Ordering::Relaxed);
        }
        self.at.store(at_ms.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn forget(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<(EngineReport, u64)> {
        let at_ms = self.at.load(Ordering::Relaxed).checked_sub(1)?;
        let number = |at: usize| f64::from_bits(self.numbers[at].load(Ordering::Relaxed));
        let report = EngineReport {
            running: number(0),
            waiting: number(1),
            kv_usage: number(2),
            kv_tokens: number(3),
        };
        Some((report, at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_report_and_then_the_last_one() {
        let last = LastEngineReport::default();
        assert_eq!(last.get(), None);
        let report = EngineReport {
            running: 1.0,
            waiting: 2.0,
            kv_usage: 0.5,
            kv_tokens: 64.0,
        };
        last.set(report, 0);
        assert_eq!(last.get(), Some((report, 0)));
        let later = EngineReport {
            running: 3.0,
            ..report
        };
        last.set(later, 7);
        assert_eq!(last.get(), Some((later, 7)));
        last.forget();
        assert_eq!(last.get(), None);
    }
}
