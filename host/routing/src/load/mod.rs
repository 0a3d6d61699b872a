//! Load of a worker: the requests that this router and the others have in flight there, and the load that the engine
//! reports.
//!
//! A [`LoadLease`] is booked when a request is dispatched and gives everything back exactly once, whenever it
//! is dropped: at the end of the stream, on an error, or when the client leaves.

mod engine;
mod held_elsewhere;
mod lease;
mod others;
mod recent;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use self::engine::EngineReport;
use self::engine::LastEngineReport;
pub use self::held_elsewhere::add_held_elsewhere;
pub use self::lease::LoadLease;
pub use self::others::{LoadTotals, OtherLoads};
use self::recent::{Average, Quantile};
use crate::cost::{CostModel, CostSample};

/// Counters of one worker. Independent relaxed atomics: a reading may mix two moments, which costs a decision
/// nothing.
#[derive(Debug, Default)]
pub struct WorkerLoad {
    requests: AtomicU32,
    decoding: AtomicU32,
    prefill_tokens: AtomicU64,
    prompt_tokens: AtomicU64,
    decoding_tokens: AtomicU64,
    times: MeasuredTimes,
    cost: CostModel,
    engine: LastEngineReport,
    others: OtherLoads,
    /// Changes of the numbers, each counted once it is done.
    changes: AtomicU64,
}

/// Statistics of the times of this router's requests.
#[derive(Debug, Default)]
struct MeasuredTimes {
    ttft: Average,
    ttft_p90: Quantile,
    tbt: Average,
}

/// Reading of the counters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadReading {
    /// Requests in flight.
    pub requests: u32,
    /// Requests past their first token, seen or [taken for granted](LoadLease::take_for_computed).
    pub decoding: u32,
    /// Uncached prompt tokens of those before their first token.
    pub prefill_tokens: u64,
    /// Prompt tokens of all of them.
    pub prompt_tokens: u64,
    /// Prompt tokens of those past their first token.
    pub decoding_tokens: u64,
    /// Average time to first token in milliseconds; NaN while unknown.
    pub ttft_ewma_ms: f64,
}

impl WorkerLoad {
    /// Returns the counters now, with the requests of other routers.
    #[must_use]
    #[inline]
    pub fn read(&self) -> LoadReading {
        let (own, others) = (self.own(), self.others.read());
        LoadReading {
            requests: own.requests.saturating_add(others.requests),
            decoding: own.decoding.saturating_add(others.decoding),
            prefill_tokens: own.prefill_tokens.saturating_add(others.prefill_tokens),
            prompt_tokens: own.prompt_tokens.saturating_add(others.prompt_tokens),
            decoding_tokens: own.decoding_tokens.saturating_add(others.decoding_tokens),
            ttft_ewma_ms: self.times.ttft.ms(),
        }
    }

    /// Returns the counters of this router's own requests.
    #[must_use]
    #[inline]
    pub fn own(&self) -> LoadTotals {
        LoadTotals {
            requests: self.requests.load(Ordering::Relaxed),
            decoding: self.decoding.load(Ordering::Relaxed),
            prefill_tokens: self.prefill_tokens.load(Ordering::Relaxed),
            prompt_tokens: self.prompt_tokens.load(Ordering::Relaxed),
            decoding_tokens: self.decoding_tokens.load(Ordering::Relaxed),
        }
    }

    /// Returns the loads of the other routers.
    #[must_use]
    #[inline]
    pub fn others(&self) -> &OtherLoads {
        &self.others
    }

    /// Returns the 90th percentile of the last first tokens in milliseconds; NaN while there were too few.
    #[must_use]
    pub fn ttft_p90_ms(&self) -> f64 {
        self.times.ttft_p90.ms()
    }

    /// Returns the average time between the tokens of an answer in milliseconds; NaN while unknown.
    #[must_use]
    #[inline]
    pub fn tbt_ewma_ms(&self) -> f64 {
        self.times.tbt.ms()
    }

    /// Returns the model of the requests' costs there, learned from its past.
    #[must_use]
    #[inline]
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    /// Returns the count of changes. Numbers that were read after a count are current for as long as the count is the
    /// same.
    #[must_use]
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Counts a change that is done.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Records a load report of the engine, at that millisecond of the caller's clock.
    pub fn record_engine_report(&self, report: EngineReport, at_ms: u64) {
        self.engine.set(report, at_ms);
        self.changed();
    }

    /// Forgets the engine's load report, because the engine is not queried any more.
    pub fn forget_engine_report(&self) {
        self.engine.forget();
        self.changed();
    }

    /// Replaces the loads that other routers put on the worker.
    pub fn set_others(&self, totals: LoadTotals) {
        self.others.set(totals);
        self.changed();
    }

    /// Learns a sample of the costs that another router saw.
    pub fn learn_elsewhere(&self, sample: &CostSample) {
        self.cost.learn_elsewhere(sample);
        self.changed();
    }

    /// Returns the engine's last load report, and its time.
    #[must_use]
    pub fn engine(&self) -> Option<(EngineReport, u64)> {
        self.engine.get()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::lease::FEW_TOKENS;
    use super::*;

    #[test]
    fn a_lease_gives_back_everything_before_and_after_the_first_token() {
        let load = Arc::<WorkerLoad>::default();
        let early = load.book(100, 40);
        let mut late = load.book(10, 10);
        late.first_token(Duration::from_millis(5));
        late.first_token(Duration::from_millis(500));
        let reading = load.read();
        assert_eq!((reading.requests, reading.decoding), (2, 1));
        assert_eq!((reading.prefill_tokens, reading.prompt_tokens), (40, 110));
        assert_eq!(reading.decoding_tokens, 10);
        drop(early);
        drop(late);
        let reading = load.read();
        assert_eq!((reading.requests, reading.decoding), (0, 0));
        assert_eq!((reading.prefill_tokens, reading.prompt_tokens), (0, 0));
        assert_eq!(reading.decoding_tokens, 0);
    }

    #[test]
    fn a_prompt_taken_for_computed_is_not_waited_for_and_teaches_nothing() {
        let load = Arc::<WorkerLoad>::default();
        let first = load.book(1_000, 600);
        let mut second = load.book(1_000, 400);
        assert_eq!(first.expected_ttft(), Some(Duration::from_millis(60)));
        assert_eq!(
            second.expected_ttft(),
            Some(Duration::from_millis(100)),
            "behind the first"
        );
        second.take_for_computed();
        assert_eq!(second.expected_ttft(), None);
        second.take_for_computed();
        second.first_token(Duration::from_secs(9));
        let reading = load.read();
        assert_eq!((reading.requests, reading.decoding), (2, 1));
        assert_eq!((reading.prefill_tokens, reading.decoding_tokens), (600, 1_000));
        assert!(reading.ttft_ewma_ms.is_nan());
        drop((first, second));
        assert_eq!((load.read().decoding, load.read().prefill_tokens), (0, 0));
        assert_eq!(load.book_fetched(1_000).expected_ttft(), None);
    }

    #[test]
    fn answers_show_whether_prefixes_held_elsewhere_are_fetched() {
        let load = Arc::<WorkerLoad>::default();
        for _ in 0..4 {
            let mut lease = load.book(4_000, 3_000).with_best_match(3_000);
            lease.prompt_cached(|| Some(2_000));
            lease.prompt_cached(|| panic!("a prompt is counted once"));
            load.book(4_000, 1_000)
                .with_best_match(3_000)
                .prompt_cached(|| panic!("nothing was to be fetched"));
            load.book_fetched(4_000)
                .with_best_match(3_000)
                .prompt_cached(|| panic!("it was computed elsewhere"));
        }
        assert_eq!(load.cost().read().fetched_share(), 0.5);
    }

    #[test]
    fn the_time_between_tokens_is_that_of_answers_that_report_their_tokens() {
        let load = Arc::<WorkerLoad>::default();
        let mut lease = load.book(1, 1);
        lease.first_token(Duration::from_millis(5));
        lease.decoded(FEW_TOKENS - 1, Duration::from_secs(1));
        assert!(load.tbt_ewma_ms().is_nan());
        lease.decoded(101, Duration::from_secs(2));
        assert_eq!(load.tbt_ewma_ms(), 20.0);
    }

    #[test]
    fn the_average_starts_at_the_first_sample_and_moves_an_eighth() {
        let load = Arc::<WorkerLoad>::default();
        assert!(load.read().ttft_ewma_ms.is_nan());
        load.book(1, 1).first_token(Duration::from_millis(80));
        assert_eq!(load.read().ttft_ewma_ms, 80.0);
        load.book(1, 1).first_token(Duration::from_millis(160));
        assert_eq!(load.read().ttft_ewma_ms, 90.0);
    }

    #[test]
    fn the_cost_model_learns_from_leases() {
        let load = Arc::<WorkerLoad>::default();
        for round in 0..32_u32 {
            let waiting = load.book(1_000, 1_000);
            let prompt = 500 + 100 * (round % 8);
            let mut lease = load.book(prompt, prompt);
            // 100 ms a thousand tokens, its own and those that wait before it.
            lease.first_token(Duration::from_micros(u64::from(100 * (1_000 + prompt))));
            lease.decoded(101, Duration::from_secs(2));
            let mut fetched = load.book_fetched(prompt);
            fetched.first_token(Duration::from_micros(u64::from(10 * prompt)));
            drop(waiting);
        }
        let near = |value: f64, expected: f64| (value - expected).abs() < 1.0;
        let expected = load.book(2_000, 2_000).expected_ttft().unwrap();
        assert!(near(expected.as_secs_f64() * 1e3, 200.0));
        assert!(near(load.cost().read().prefill_ms(2_000, 0), 200.0));
        assert!(near(1e3 * load.cost().read().token_ms(), 100.0));
        assert!(near(load.cost().read().transfer_ms(2_000), 20.0));
        assert!(near(load.cost().read().tbt_ms(1, 1_500), 20.0));
    }
}
