//! Report on the index for operators: blocks by worker and tier, and the most popular prefixes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kv_index::{PrefixSurvey, SharedPrefix, SharedPrefixIndex, SurveyLimits, WorkerHoldings};
use routing::WorkerId;
use serde::Serialize;

/// Time for which a survey is shown again.
const FRESH: Duration = Duration::from_secs(2);
/// Limits of a survey: some milliseconds of work.
const LIMITS: SurveyLimits = SurveyLimits {
    prefixes: 50,
    runs: 65_536,
    blocks: 262_144,
};
/// Hexadecimal digits of a prefix: enough to distinguish 50.
const PREFIX_DIGITS: usize = 12;

/// A worker of the fleet, as the report names it.
#[derive(Debug, Clone)]
pub struct IndexedWorker {
    /// Name of its pool.
    pub pool: Box<str>,
    /// Name of the worker.
    pub name: Box<str>,
    /// Its id in the index.
    pub id: WorkerId,
}

/// Maker of reports, which keeps the latest survey for a moment.
#[derive(Debug)]
pub struct IndexReporter {
    index: Arc<SharedPrefixIndex>,
    last: Mutex<Option<(Instant, PrefixSurvey)>>,
}

/// State of the index.
#[derive(Debug, Serialize)]
pub struct IndexReport {
    /// Different blocks in the index.
    blocks: usize,
    /// Workers in the order of the fleet.
    workers: Vec<WorkerBlocks>,
    /// Prefixes with the most continuations, for each pool that holds them.
    hottest: Vec<HotPrefix>,
    /// `false` if the index was too large to be read in full.
    hottest_complete: bool,
}

/// Blocks that one worker holds, counted per tier, rank and group.
#[derive(Debug, Serialize)]
struct WorkerBlocks {
    pool: Box<str>,
    worker: Box<str>,
    /// Blocks on all tiers, without predictions.
    blocks: u64,
    tiers: TierBlocks,
    /// Blocks that are predicted because requests were just sent there.
    expected: u64,
    /// Block size in tokens, once it is known.
    block_size: Option<u32>,
}

#[derive(Debug, Serialize)]
struct TierBlocks {
    device: u64,
    host: u64,
    disk: u64,
    shared: u64,
}

/// A popular prefix in one pool.
#[derive(Debug, Serialize)]
struct HotPrefix {
    pool: Box<str>,
    /// Beginning of its hash.
    prefix: String,
    depth_tokens: u32,
    depth_blocks: u32,
    /// Requests for it. The index does not count them.
    requests: Option<u64>,
    /// Different continuations in the index, which stand for its popularity.
    continuations: u32,
    workers: Vec<Box<str>>,
}

impl IndexReporter {
    /// Creates the maker of reports on an index.
    #[must_use]
    pub fn new(index: Arc<SharedPrefixIndex>) -> Self {
        Self {
            index,
            last: Mutex::default(),
        }
    }

    /// Returns the report on a fleet. It takes milliseconds, so call it on a thread that serves no requests.
    #[must_use]
    pub fn report(&self, fleet: &[IndexedWorker]) -> IndexReport {
        let survey = self.survey();
        let names: BTreeMap<WorkerId, &IndexedWorker> =
            fleet.iter().map(|worker| (worker.id, worker)).collect();
        let hottest = survey.prefixes.iter();
        IndexReport {
            blocks: self.index.stats().distinct_blocks,
            workers: fleet.iter().map(|worker| self.worker(worker)).collect(),
            hottest: hottest.flat_map(|prefix| by_pool(prefix, &names)).collect(),
            hottest_complete: survey.is_complete,
        }
    }

    /// Returns the latest survey, or makes one. Several callers wait for the same one.
    fn survey(&self) -> PrefixSurvey {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, survey)) = last.as_ref().filter(|(made, _)| made.elapsed() < FRESH) {
            return survey.clone();
        }
        let survey = self.index.survey(LIMITS);
        *last = Some((Instant::now(), survey.clone()));
        survey
    }

    fn worker(&self, worker: &IndexedWorker) -> WorkerBlocks {
        let WorkerHoldings {
            device,
            host,
            disk,
            shared,
            expected,
        } = self.index.holdings(worker.id);
        WorkerBlocks {
            pool: worker.pool.clone(),
            worker: worker.name.clone(),
            blocks: device + host + disk + shared,
            tiers: TierBlocks {
                device,
                host,
                disk,
                shared,
            },
            expected,
            block_size: self.index.block_size(worker.id),
        }
    }
}

/// Returns a prefix once for each pool that holds it.
fn by_pool(prefix: &SharedPrefix, names: &BTreeMap<WorkerId, &IndexedWorker>) -> Vec<HotPrefix> {
    let mut pools: BTreeMap<&str, Vec<Box<str>>> = BTreeMap::new();
    for worker in prefix.workers.iter().filter_map(|id| names.get(id)) {
        pools.entry(&worker.pool).or_default().push(worker.name.clone());
    }
    let hash = format!("{:016x}", prefix.hash);
    let of_pool = |(pool, workers): (&str, Vec<Box<str>>)| HotPrefix {
        pool: pool.into(),
        prefix: hash[..PREFIX_DIGITS].to_owned(),
        depth_tokens: prefix.tokens,
        depth_blocks: prefix.blocks,
        requests: None,
        continuations: prefix.continuations,
        workers,
    };
    pools.into_iter().map(of_pool).collect()
}

#[cfg(test)]
mod tests {
    use kv_index::{IndexLimits, Prompt, Sent};

    use super::*;

    fn indexed(pool: &str, name: &str, id: u32) -> IndexedWorker {
        IndexedWorker {
            pool: pool.into(),
            name: name.into(),
            id: WorkerId(id),
        }
    }

    #[test]
    fn a_prefix_is_reported_for_each_pool_that_holds_it() {
        let index = Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 1_000 }));
        for (worker, last) in [(0, 9), (1, 8), (2, 7)] {
            let sent = Sent {
                worker: WorkerId(worker),
                block_size: 2,
                capacity: 100,
            };
            index.expect(&sent, &mut Prompt::new(vec![1, 2, 3, 4, last, last], None, None));
        }
        let reporter = IndexReporter::new(index);
        let fleet = [
            indexed("a", "w0", 0),
            indexed("a", "w1", 1),
            indexed("b", "w0", 2),
        ];
        let page = serde_json::to_value(reporter.report(&fleet)).unwrap();
        assert_eq!(page["blocks"], 5);
        let first = &page["hottest"][0];
        assert_eq!(
            (&first["pool"], &first["depth_tokens"], &first["continuations"]),
            (&"a".into(), &4.into(), &3.into()),
            "{page}"
        );
        assert_eq!(first["workers"], serde_json::json!(["w0", "w1"]));
        assert_eq!(first["prefix"].as_str().unwrap().len(), PREFIX_DIGITS);
        assert_eq!(page["hottest"][1]["pool"], "b");
        assert_eq!(page["workers"][2]["expected"], 3);
        assert_eq!(page["workers"][2]["block_size"], 2);
        assert_eq!(page["hottest_complete"], true);
    }
}
