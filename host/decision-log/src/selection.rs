//! Selection of the requests to record, made once per request from its sequence number.

use std::num::NonZeroU32;
use std::sync::Arc;

use routing::hash_mix;

use crate::recorder::Recorder;
use crate::trace::Kept;

/// Recording rules of one configuration.
#[derive(Debug, Clone)]
pub struct RecordSpec {
    /// Recorder.
    pub recorder: Arc<Recorder>,
    /// Share of requests written to the file that [`Recorder::apply`] sets.
    pub file: Sampling,
    /// Share of requests kept in memory for `explain`, in addition to those of the file.
    pub explain: Sampling,
    /// Set if a request can obtain an explanation with `x-conductor-explain: 1`.
    pub explain_on_demand: bool,
    /// Maximum number of requests kept in memory.
    pub explained: usize,
    /// Set if all known columns are recorded, beyond those of the policy.
    pub all_columns: bool,
    /// Share of requests in the access log, besides those that failed. `None`: the log is off.
    pub access: Option<Sampling>,
    /// Block size in tokens, if the file contains the prompts' block hashes.
    pub prompt_blocks: Option<NonZeroU32>,
}

/// Share of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling(u64);

impl Sampling {
    /// No requests.
    pub const NONE: Self = Self(0);

    /// Creates a share from 0 to 1.
    #[must_use]
    pub fn share(share: f64) -> Self {
        // 1.0 saturates at `u64::MAX`, which `takes` treats as all.
        Self((share * 2_f64.powi(64)) as u64)
    }

    fn takes(self, hash: u64) -> bool {
        hash < self.0 || self.0 == u64::MAX
    }
}

impl RecordSpec {
    /// Returns rules that record nothing.
    #[must_use]
    pub fn nothing(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            file: Sampling::NONE,
            explain: Sampling::NONE,
            explain_on_demand: false,
            explained: 0,
            all_columns: false,
            access: None,
            prompt_blocks: None,
        }
    }

    /// Returns the destinations of a request's record, or `None`. `on_demand` is set if the client requests an
    /// explanation.
    pub(crate) fn choose(&self, seq: u64, on_demand: bool) -> Option<Kept> {
        let hash = hash_mix(self.recorder.run().seed(seq));
        let in_file = self.file.takes(hash);
        let explains = self.explained > 0
            && (in_file || self.explain.takes(hash) || self.explain_on_demand && on_demand);
        (in_file || explains).then_some(Kept {
            in_file,
            in_memory: explains,
        })
    }

    /// Returns whether a request that does not fail has a line in the access log. `None` if the log is off.
    #[must_use]
    pub fn in_access_log(&self, seq: u64) -> Option<bool> {
        let share = self.access?;
        Some(share.takes(hash_mix(self.recorder.run().seed(seq))))
    }

    /// Returns `true` if the record of a request needs the prompt's tokens. `on_demand` is as `is_explained` of
    /// [`crate::TraceStart`].
    #[must_use]
    pub fn needs_tokens(&self, seq: u64, on_demand: bool) -> bool {
        let needs = |kept: Kept| self.all_columns || kept.in_file && self.prompt_blocks.is_some();
        (self.all_columns || self.prompt_blocks.is_some()) && self.choose(seq, on_demand).is_some_and(needs)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn spec() -> RecordSpec {
        RecordSpec::nothing(Recorder::new(&mut Registry::default()))
    }

    fn taken(spec: &RecordSpec) -> usize {
        (1..=100_000)
            .filter(|seq| spec.choose(*seq, false).is_some())
            .count()
    }

    #[test]
    fn sampling_takes_its_share_and_is_deterministic() {
        let mut spec = spec();
        assert_eq!(taken(&spec), 0);
        spec.file = Sampling::share(1.0);
        assert_eq!(taken(&spec), 100_000);
        spec.file = Sampling::share(0.01);
        let taken_once = taken(&spec);
        assert!((900..1100).contains(&taken_once), "{taken_once}");
        assert_eq!(taken(&spec), taken_once);
        spec.file = Sampling::share(0.0);
        assert_eq!(taken(&spec), 0);
    }

    #[test]
    fn runs_sample_different_requests() {
        let taken = |run| -> Vec<u64> {
            let mut registry = Registry::default();
            let mut spec = RecordSpec::nothing(Recorder::of_run(&mut registry, routing::RunNumber(run)));
            spec.file = Sampling::share(0.1);
            (1..=1_000)
                .filter(|seq| spec.choose(*seq, false).is_some())
                .collect()
        };
        assert_eq!(taken(1 << 50), taken(1 << 50));
        assert_ne!(taken(1 << 50), taken(1 << 51));
    }

    #[test]
    fn requests_of_the_file_are_also_kept_in_memory_if_any_are() {
        let mut spec = spec();
        spec.file = Sampling::share(1.0);
        let kept = |spec: &RecordSpec| spec.choose(1, false).unwrap();
        assert!(!kept(&spec).in_memory);
        spec.explained = 10;
        assert!(kept(&spec).in_memory && kept(&spec).in_file);
    }

    #[test]
    fn a_request_is_explained_on_demand_if_that_is_allowed() {
        let mut spec = spec();
        spec.explained = 10;
        assert_eq!(spec.choose(1, true), None);
        spec.explain_on_demand = true;
        assert!(
            spec.choose(1, true)
                .is_some_and(|kept| kept.in_memory && !kept.in_file)
        );
        assert_eq!(spec.choose(1, false), None);
    }
}
