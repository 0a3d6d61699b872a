//! Shadow policies: policies that are called for a share of a route's requests and decide nothing.
//!
//! When a request is placed, and before it is booked anywhere, it hands over the inputs of its decision. These are its
//! context, the candidates, their loads and their matches (`captured.rs`).
//!
//! A request pays only for the copy, and only if it is in the share. Its matches are looked up for the shadows where
//! its tokens are known and the active policy did not query them. A request never waits for a full queue.
//!
//! One thread of low priority calls the shadows, one request after the other (`decide.rs`). Its view of the captured
//! state is `view.rs`. `results.rs` compares and `record.rs` keeps the results.

mod captured;
mod decide;
mod log;
mod metrics;
mod record;
mod results;
mod thread;
mod view;

use std::sync::Arc;

use routing::{PolicyVersions, hash_mix};

use crate::observe::experiments::TrialSpec;

pub(crate) use self::captured::DecidedPlacement;
pub(crate) use self::metrics::ShadowFamilies;
use self::metrics::ShadowLabel;
use self::record::ShadowRecord;
pub use self::record::{Disagreement, Pick, ShadowReport};
pub(crate) use self::thread::ShadowQueue;

/// Most requests that wait for the shadows.
const QUEUE: usize = 256;
/// Most bytes of bodies that those may hold.
const QUEUED_BYTES: usize = 64 << 20;

/// Shadows of one route.
#[derive(Debug)]
pub(crate) struct Shadows {
    /// Upper bound of the hashes of requests in the share.
    sample: u64,
    each: Box<[Shadow]>,
}

#[derive(Debug)]
struct Shadow {
    policy: Arc<PolicyVersions>,
    record: Arc<ShadowRecord>,
}

impl Shadows {
    /// Returns the shadows of a route of this title to this pool. The record of one of the same name and version in
    /// `before` is kept.
    pub(crate) fn next(
        spec: &TrialSpec,
        pool: &str,
        title: &str,
        before: Option<&Self>,
        metrics: &ShadowFamilies,
    ) -> Option<Self> {
        let each: Box<[Shadow]> = spec
            .shadows
            .iter()
            .map(|shadow| {
                let mut known = before.iter().flat_map(|shadows| &shadows.each);
                let known = known.find(|known| {
                    known.record.label.policy == shadow.name
                        && known.policy.active().is_same(shadow.policy.active())
                });
                let record = known.map(|known| Arc::clone(&known.record));
                let fresh = || {
                    let label = ShadowLabel {
                        pool: pool.to_owned(),
                        route: title.to_owned(),
                        policy: shadow.name.clone(),
                    };
                    Arc::new(ShadowRecord::new(metrics.shadow(&label), label))
                };
                Shadow {
                    policy: Arc::clone(&shadow.policy),
                    record: record.unwrap_or_else(fresh),
                }
            })
            .collect();
        (!each.is_empty()).then_some(Self {
            // The float becomes an integer within its bounds.
            sample: (spec.shadow_sample * u64::MAX as f64) as u64,
            each,
        })
    }

    /// Counts a request that found no room.
    fn dropped(&self) {
        for shadow in &self.each {
            shadow.record.dropped();
        }
    }

    /// Returns `true` if the request with that seed is in the share of the shadows.
    pub(crate) fn take(&self, seed: u64) -> bool {
        hash_mix(!seed) <= self.sample
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyVersions> {
        self.each.iter().map(|shadow| &*shadow.policy)
    }

    /// Returns the reports of the shadows of the route with this number.
    pub(crate) fn report(&self, number: usize) -> impl Iterator<Item = ShadowReport> {
        let report = move |shadow: &Shadow| shadow.record.report(number, &shadow.policy.active().id);
        self.each.iter().map(report)
    }
}
