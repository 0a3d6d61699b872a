//! Loads that other routers put on a worker, as they report them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::admission::{HELD_CLASSES, HeldSummary};

/// Totals of requests in flight at a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Requests in flight.
    pub requests: u32,
    /// Requests past their first token.
    pub decoding: u32,
    /// Uncached prompt tokens of those before their first token.
    pub prefill_tokens: u64,
    /// Prompt tokens of all of them.
    pub prompt_tokens: u64,
    /// Prompt tokens of those past their first token.
    pub decoding_tokens: u64,
}

/// Sums over the other routers. One thread writes; relaxed atomics, as a reading may mix two moments.
#[derive(Debug, Default)]
pub struct OtherLoads {
    requests: AtomicU32,
    decoding: AtomicU32,
    prefill_tokens: AtomicU64,
    prompt_tokens: AtomicU64,
    decoding_tokens: AtomicU64,
    has_held: AtomicBool,
    /// Bits of the order of the first of them.
    first_held: AtomicU64,
    held: [HeldCell; HELD_CLASSES],
}

#[derive(Debug, Default)]
struct HeldCell {
    requests: AtomicU32,
    work: AtomicU64,
}

impl OtherLoads {
    /// Replaces the totals.
    pub(super) fn set(&self, totals: LoadTotals) {
        self.requests.store(totals.requests, Ordering::Relaxed);
        self.decoding.store(totals.decoding, Ordering::Relaxed);
        self.prefill_tokens
            .store(totals.prefill_tokens, Ordering::Relaxed);
        self.prompt_tokens.store(totals.prompt_tokens, Ordering::Relaxed);
        self.decoding_tokens
            .store(totals.decoding_tokens, Ordering::Relaxed);
    }

    /// Returns the totals.
    #[must_use]
    #[inline]
    pub fn read(&self) -> LoadTotals {
        LoadTotals {
            requests: self.requests.load(Ordering::Relaxed),
            decoding: self.decoding.load(Ordering::Relaxed),
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
            prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
            decoding_tokens: self.decoding_tokens.load(Ordering::Relaxed),
        }
    }

    /// Replaces the requests that other routers hold for the worker.
    pub fn set_held(&self, held: &HeldSummary) {
        for (cell, class) in self.held.iter().zip(held.classes()) {
            cell.requests.store(class.requests, Ordering::Relaxed);
            cell.work.store(class.work, Ordering::Relaxed);
        }
        let first = held.first_order().to_bits();
        self.first_held.store(first, Ordering::Relaxed);
        self.has_held.store(held.requests() > 0, Ordering::Relaxed);
    }

    /// Returns the requests that other routers hold for the worker; `None` if there are none.
    #[must_use]
    pub fn held(&self) -> Option<HeldSummary> {
        self.has_held.load(Ordering::Relaxed).then(|| {
            let classes = self.held.each_ref().map(|cell| {
                let requests = cell.requests.load(Ordering::Relaxed);
                (requests, cell.work.load(Ordering::Relaxed))
            });
            HeldSummary::of_classes(classes, self.first_order())
        })
    }

    /// Returns the policy's order of the first request that another router holds for the worker; infinite if there is
    /// none.
    #[must_use]
    pub fn first_order(&self) -> f64 {
        match self.has_held.load(Ordering::Relaxed) {
            true => f64::from_bits(self.first_held.load(Ordering::Relaxed)),
            false => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::load::WorkerLoad;

    #[test]
    fn a_reading_is_the_sum_of_the_own_and_the_other_requests() {
        let load = Arc::<WorkerLoad>::default();
        let _own = load.book(100, 40);
        load.set_others(LoadTotals {
            requests: 3,
            decoding: 1,
            prefill_tokens: 60,
            prompt_tokens: 500,
            decoding_tokens: 200,
        });
        let reading = load.read();
        assert_eq!((reading.requests, reading.decoding), (4, 1));
        assert_eq!((reading.prefill_tokens, reading.prompt_tokens), (100, 600));
        assert_eq!(reading.decoding_tokens, 200);
        let own = load.own();
        assert_eq!((own.requests, own.prefill_tokens), (1, 40));
    }

    #[test]
    fn a_lease_learns_behind_the_tokens_of_all_routers() {
        let load = Arc::<WorkerLoad>::default();
        let others = |prefill_tokens| LoadTotals {
            prefill_tokens,
            ..LoadTotals::default()
        };
        for round in 0..32_u32 {
            // 100 ms a thousand tokens, its own and those that another router has put before it.
            let (ahead, prompt) = (1_000 * (round % 3), 500 + 100 * (round % 8));
            load.set_others(others(ahead.into()));
            let mut lease = load.book(prompt, prompt);
            lease.first_token(Duration::from_micros(u64::from(100 * (ahead + prompt))));
        }
        assert!((load.cost().read().prefill_ms(2_000, 0) - 200.0).abs() < 1.0);
        load.set_others(others(2_000));
        let expected = load.book(1_000, 1_000).expected_ttft().unwrap();
        assert!((expected.as_secs_f64() - 0.3).abs() < 0.001);
    }

    #[test]
    fn held_requests_are_those_set_last() {
        let others = OtherLoads::default();
        assert_eq!(others.held(), None);
        let mut held = HeldSummary::default();
        held.add(300, 2.0);
        others.set_held(&held);
        assert_eq!((others.held(), others.first_order()), (Some(held), 2.0));
        others.set_held(&HeldSummary::default());
        assert_eq!((others.held(), others.first_order()), (None, f64::INFINITY));
    }
}
