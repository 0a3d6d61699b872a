//! Policies that are asked about a share of a route's requests and decide nothing.
//!
//! A request hands over, at the moment it is placed and before it is booked anywhere, what a decision is made of: its context, who
//! was there, their loads and their matches ([`Captured`]). The copy is all it pays, and only if it is among the share (the matches
//! are looked up for it where its tokens are known and the policy in force did not ask). A queue that is full is not waited for. One
//! thread of low priority asks the shadows, one request after the other (`ask.rs`; its view of the captured state is `view.rs`), and `record.rs` keeps what came of it.

mod ask;
mod captured;
mod log;
mod metrics;
mod record;
mod thread;
mod view;

use std::sync::Arc;

use routing::{PolicyVersions, hash_mix};

use crate::observe::experiments::TrialSpec;

pub(crate) use self::captured::Captured;
pub(crate) use self::metrics::ShadowFamilies;
use self::metrics::ShadowLabel;
use self::record::ShadowRecord;
pub use self::record::{Disagreement, Pick, ShadowReport};
pub(crate) use self::thread::ShadowQueue;

/// Most requests that wait for the shadows.
const QUEUE: usize = 256;
/// Most bytes of bodies that those may hold.
const QUEUED_BYTES: usize = 64 << 20;

/// The shadows of one route.
#[derive(Debug)]
pub(crate) struct Shadows {
    /// A request is among the share if its mixed number is at most this.
    sample: u64,
    each: Box<[Shadow]>,
}

#[derive(Debug)]
struct Shadow {
    policy: Arc<PolicyVersions>,
    record: Arc<ShadowRecord>,
}

impl Shadows {
    /// Returns the shadows of a route of this title to this pool. What `before` knows of one of the same name is kept.
    pub(crate) fn next(
        spec: &TrialSpec,
        (pool, title): (&str, &str),
        before: Option<&Self>,
        metrics: &ShadowFamilies,
    ) -> Option<Self> {
        let each: Box<[Shadow]> = spec
            .shadows
            .iter()
            .map(|shadow| {
                let mut known = before.iter().flat_map(|shadows| &shadows.each);
                let known = known.find(|known| known.record.label.policy == shadow.name);
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
            // A float becomes an integer within its bounds.
            sample: (spec.shadow_sample * u64::MAX as f64) as u64,
            each,
        })
    }

    /// Returns whether they are asked about the request with that seed.
    pub(crate) fn take(&self, seed: u64) -> bool {
        hash_mix(!seed) <= self.sample
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = &PolicyVersions> {
        self.each.iter().map(|shadow| &*shadow.policy)
    }

    pub(crate) fn report(&self) -> impl Iterator<Item = ShadowReport> {
        let report = |shadow: &Shadow| shadow.record.report(&shadow.policy.in_force().id);
        self.each.iter().map(report)
    }
}
