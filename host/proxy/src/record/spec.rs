//! Which requests are recorded, settled once for each from its number and its headers.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::HeaderMap;

use super::recorder::Recorder;
use crate::headers::X_CONDUCTOR_EXPLAIN;
use crate::mix::mix;

/// What is recorded under one configuration.
#[derive(Debug, Clone)]
pub struct RecordSpec {
    /// Where to.
    pub recorder: Arc<Recorder>,
    /// Which requests go to the file; [`Recorder::apply`] says which file.
    pub file: Sampling,
    /// Which are kept in memory to be explained, besides those of the file.
    pub explain: Sampling,
    /// Whether a request with `x-conductor-explain: 1` is among them.
    pub explain_on_demand: bool,
    /// Most requests kept in memory.
    pub explained: usize,
    /// Whether every known column is recorded, not just those the policy asked for.
    pub all_columns: bool,
    /// Tokens of a block, where the hashes of the prompts' blocks go to the file.
    pub prompt_blocks: Option<NonZeroU32>,
}

/// A share of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling(u64);

/// Where a request is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) in_file: bool,
    pub(crate) in_memory: bool,
}

impl Sampling {
    /// No request.
    pub const NONE: Self = Self(0);

    /// A share from 0 to 1.
    #[must_use]
    pub fn share(share: f64) -> Self {
        // 1.0 saturates at the largest number, which no hash is above.
        Self((share * 2_f64.powi(64)) as u64)
    }

    fn takes(self, hash: u64) -> bool {
        hash < self.0 || self.0 == u64::MAX
    }
}

impl RecordSpec {
    /// Nothing.
    #[must_use]
    pub fn nothing(recorder: Arc<Recorder>) -> Self {
        Self {
            recorder,
            file: Sampling::NONE,
            explain: Sampling::NONE,
            explain_on_demand: false,
            explained: 0,
            all_columns: false,
            prompt_blocks: None,
        }
    }

    /// Whether, and where, a request is recorded.
    pub(crate) fn choose(&self, seq: u64, headers: &HeaderMap) -> Option<Kept> {
        let hash = mix(self.recorder.run().seed(seq));
        let in_file = self.file.takes(hash);
        let explains = self.explained > 0
            && (in_file || self.explain.takes(hash) || self.explain_on_demand && wants_explanation(headers));
        (in_file || explains).then_some(Kept {
            in_file,
            in_memory: explains,
        })
    }

    /// Whether the prompt's tokens are wanted for the record's sake.
    pub(crate) fn wants_tokens(&self, seq: u64, headers: &HeaderMap) -> bool {
        let wants = |kept: Kept| self.all_columns || kept.in_file && self.prompt_blocks.is_some();
        (self.all_columns || self.prompt_blocks.is_some()) && self.choose(seq, headers).is_some_and(wants)
    }
}

fn wants_explanation(headers: &HeaderMap) -> bool {
    headers
        .get(X_CONDUCTOR_EXPLAIN)
        .is_some_and(|value| value.as_bytes() == b"1")
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn spec() -> RecordSpec {
        RecordSpec::nothing(Recorder::new(&mut Registry::default()))
    }

    fn taken(spec: &RecordSpec) -> usize {
        let headers = HeaderMap::new();
        (1..=100_000)
            .filter(|seq| spec.choose(*seq, &headers).is_some())
            .count()
    }

    #[test]
    fn a_share_of_the_requests_is_taken_and_the_same_each_time() {
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
    fn routers_of_different_runs_take_different_requests() {
        let taken = |run| -> Vec<u64> {
            let mut registry = Registry::default();
            let mut spec = RecordSpec::nothing(Recorder::of_run(&mut registry, routing::RunNumber(run)));
            spec.file = Sampling::share(0.1);
            let headers = HeaderMap::new();
            (1..=1_000)
                .filter(|seq| spec.choose(*seq, &headers).is_some())
                .collect()
        };
        assert_eq!(taken(1 << 50), taken(1 << 50));
        assert_ne!(taken(1 << 50), taken(1 << 51));
    }

    #[test]
    fn what_goes_to_the_file_is_kept_in_memory_too_where_anything_is() {
        let mut spec = spec();
        spec.file = Sampling::share(1.0);
        let kept = |spec: &RecordSpec| spec.choose(1, &HeaderMap::new()).unwrap();
        assert!(!kept(&spec).in_memory);
        spec.explained = 10;
        assert!(kept(&spec).in_memory && kept(&spec).in_file);
    }

    #[test]
    fn a_request_is_explained_on_demand_where_that_is_allowed() {
        let mut spec = spec();
        spec.explained = 10;
        let mut headers = HeaderMap::new();
        headers.insert(X_CONDUCTOR_EXPLAIN, "1".parse().unwrap());
        assert_eq!(spec.choose(1, &headers), None);
        spec.explain_on_demand = true;
        assert!(
            spec.choose(1, &headers)
                .is_some_and(|kept| kept.in_memory && !kept.in_file)
        );
        headers.insert(X_CONDUCTOR_EXPLAIN, "0".parse().unwrap());
        assert_eq!(spec.choose(1, &headers), None);
    }
}
