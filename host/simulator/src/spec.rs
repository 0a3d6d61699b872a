//! Specification of a cluster, and the parts that the model leaves out.

use std::collections::BTreeMap;

use routing::Role;

use crate::profile::Profile;

/// Blocks of a prefill worker in the replays of `mooncake-paper.md`, section 10: 3M tokens in blocks of 512.
pub const RESEARCH_BLOCKS: usize = 5_859;

/// The workers, the costs of their work, and its order.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSpec {
    /// Workers, by the index that names them.
    pub workers: Vec<WorkerSpec>,
    /// Costs on a worker of speed 1.
    pub profile: Profile,
    /// Rule for fetching a prompt's cached prefix from another worker.
    pub fetch: FetchRule,
    /// Resource that such a transfer occupies.
    pub transfers: Transfers,
    /// Times of a prompt's lookup and of its insertion into the cache.
    pub cache_timing: CacheTiming,
    /// Order in which a worker computes prompts.
    pub order: QueueOrder,
    /// The most tokens a step takes, with parts of several prompts in it (chunked prefill); none: one whole prompt
    /// after the other, while the worker's answers wait.
    pub chunk_tokens: Option<u32>,
    /// The most prompts in a step with chunked prefill; none: as many as the step has tokens for.
    pub step_prompts: Option<usize>,
    /// Set if answers are written at all. Otherwise a request is over with its first token.
    pub decode: bool,
    /// A decode worker refuses a computed prompt whose answer would have its steps take more than so many microseconds,
    /// and the request is over (`mooncake-paper.md`, section 6, baseline); none: it waits there for room.
    pub decode_refuses_over_us: Option<u64>,
}

/// A worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSpec {
    /// Role.
    pub role: Role,
    /// Blocks that its cache holds on the device, in host memory and on disk. Without blocks on the device it caches
    /// nothing.
    pub cache_blocks: [usize; 3],
    /// Tokens of running requests that it holds: prompts and the answers they will have. The cache's blocks are not
    /// among them.
    pub kv_tokens: u64,
    /// Speed of computation as a multiple of the profile's.
    pub speed: f64,
    /// Bandwidth of its link, in gigabits a second.
    pub link_gbps: f64,
    /// Identity in a recorded fleet. `None` for a worker that is named by role and index, with its speed as the weight.
    pub identity: Option<WorkerIdentity>,
}

/// Name, weight and labels of a recorded worker, which policies read.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerIdentity {
    /// Name in the configuration, unique in a cluster.
    pub name: String,
    /// Weight in the configuration. The speed is not derived from it.
    pub weight: f64,
    /// Labels in the configuration.
    pub labels: BTreeMap<String, String>,
}

/// Rule for fetching a prompt's cached prefix from another worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FetchRule {
    /// No fetches.
    Off,
    /// Fetches where the transfer and the rest of the prompt take less time than computing it from the worker's own
    /// prefix.
    Cheapest,
    /// Mooncake's Algorithm 1: where the longest prefix is more than so many times the worker's own.
    Ratio(f64),
}

/// Resource that a transfer of cached blocks occupies. One from prefill to decode always shares the sender's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfers {
    /// The receiver only, which computes nothing meanwhile: as in the replays of `mooncake-paper.md`.
    HoldReceiver,
    /// The sender's link, in equal shares with its other transfers. The prompt waits for it, others are computed
    /// meanwhile.
    ShareSender,
}

/// Times of a prompt's lookup and of its insertion into the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheTiming {
    /// Both when the prompt comes to the worker: as the replays of `mooncake-paper.md` had it, and nearly exact where
    /// prompts are computed in the order of their coming.
    Routed,
    /// Looks up when its computation begins, is found when it has ended.
    Computed,
}

/// Order of the prefill queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueOrder {
    /// The one that came first.
    Fifo,
    /// The one that takes the least time.
    Shortest,
    /// The one with the least time left, begun or not: a shorter prompt interrupts a longer one between two steps.
    ShortestLeft,
    /// `scheduling-sota.md` 24b: the shortest of those that can have their first token in time, unless the one with the
    /// least slack would miss its time by that; then that one. Those that cannot make it any more go last.
    SlackGuarded {
        /// Limit from the arrival to the first token, in microseconds.
        limit_us: u64,
    },
}

impl WorkerSpec {
    /// Returns a worker as the profile describes it, with so many blocks on its device.
    #[must_use]
    pub fn of(profile: &Profile, role: Role, cache_blocks: usize) -> Self {
        Self {
            role,
            cache_blocks: [cache_blocks, 0, 0],
            kv_tokens: profile.kv_capacity_tokens(),
            speed: 1.0,
            link_gbps: profile.link_gbps(),
            identity: None,
        }
    }
}

impl ClusterSpec {
    /// Returns the specification of the replays of `mooncake-paper.md`, section 10: each worker computes one prompt
    /// after the other, answers are not written, a cache takes a prompt in when it is routed. The workers' role is
    /// [`Role::Mixed`], since whole requests go to them.
    #[must_use]
    pub fn prefill_only(workers: usize, cache_blocks: usize) -> Self {
        let profile = Profile::default();
        Self {
            workers: vec![WorkerSpec::of(&profile, Role::Mixed, cache_blocks); workers],
            profile,
            fetch: FetchRule::Off,
            transfers: Transfers::HoldReceiver,
            cache_timing: CacheTiming::Routed,
            order: QueueOrder::Fifo,
            chunk_tokens: None,
            step_prompts: None,
            decode: false,
            decode_refuses_over_us: None,
        }
    }

    /// Returns prefill workers with so many blocks, and decode workers without a cache after them. Links are shared,
    /// caches hold the computed blocks.
    #[must_use]
    pub fn disaggregated(prefill: usize, decode: usize, cache_blocks: usize) -> Self {
        let profile = Profile::default();
        let mut workers = vec![WorkerSpec::of(&profile, Role::Prefill, cache_blocks); prefill];
        workers.resize(prefill + decode, WorkerSpec::of(&profile, Role::Decode, 0));
        Self {
            workers,
            ..Self::mixed(0, cache_blocks, None)
        }
    }

    /// Sets the costs to those of this profile; the memory and the links are the profile's too.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        for worker in &mut self.workers {
            worker.kv_tokens = profile.kv_capacity_tokens();
            worker.link_gbps = profile.link_gbps();
        }
        self.profile = profile;
        self
    }

    /// Returns workers that compute prompts and write answers, in steps of so many tokens if any are given.
    #[must_use]
    pub fn mixed(workers: usize, cache_blocks: usize, chunk_tokens: Option<u32>) -> Self {
        let profile = Profile::default();
        Self {
            workers: vec![WorkerSpec::of(&profile, Role::Mixed, cache_blocks); workers],
            profile,
            fetch: FetchRule::Off,
            transfers: Transfers::ShareSender,
            cache_timing: CacheTiming::Computed,
            order: QueueOrder::Fifo,
            chunk_tokens,
            step_prompts: None,
            decode: true,
            decode_refuses_over_us: None,
        }
    }
}
