//! Predicted costs of requests that are not learned: by a profile, exactly or with errors; and the decision to fetch a
//! prefix from the worker that holds most of it.

use kv_index::WorkerMatch;
use routing::{LoadTotals, SplitMix64};

use super::spec::CostSource;
use crate::profile::Profile;
use crate::spec::{ClusterSpec, FetchRule};

/// The prices of a cluster.
#[derive(Debug)]
pub(super) struct Prices {
    oracle: Option<CostOracle>,
    /// True costs of the engines.
    profile: Profile,
    fetch: FetchRule,
    /// Speeds of the workers.
    speeds: Vec<f64>,
    seed: u64,
}

#[derive(Debug)]
struct CostOracle {
    profile: Profile,
    sigma: f64,
}

/// A prompt, and how much of it is cached, in tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct PromptLengths {
    prompt: u32,
    /// Matched tokens at the worker itself: on the device, there or in host memory, on any tier.
    own: [u32; 3],
    /// Matched tokens at the worker that holds most of the prompt.
    best: u32,
}

impl PromptLengths {
    /// Returns the lengths for a worker with this match. No match counts as nothing.
    pub(super) fn new(prompt: u32, own: Option<&WorkerMatch>, best: Option<u32>) -> Self {
        let own = own.map_or([0; 3], |own| [own.device_tokens, own.host_tokens, own.any_tokens]);
        Self {
            prompt,
            own,
            best: best.unwrap_or(0),
        }
    }
}

/// Work of a prompt on a worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Work {
    /// Time to the end of its computation, in microseconds.
    pub(super) us: f64,
    /// Set if the best holder's prefix is fetched first.
    pub(super) fetches: bool,
}

impl Prices {
    pub(super) fn new(cluster: &ClusterSpec, costs: &CostSource, seed: u64) -> Self {
        let profile = cluster.profile.clone();
        let oracle = match costs {
            CostSource::Learned => None,
            CostSource::Exact(profile) => Some((profile.clone(), 0.0)),
            CostSource::Wrong { sigma } => Some((profile.clone(), *sigma)),
        };
        Self {
            oracle: oracle.map(|(profile, sigma)| CostOracle { profile, sigma }),
            profile,
            fetch: cluster.fetch,
            speeds: cluster.workers.iter().map(|worker| worker.speed).collect(),
            seed,
        }
    }

    /// Returns whether costs are predicted here, and not by the workers' models.
    pub(super) fn are_given(&self) -> bool {
        self.oracle.is_some()
    }

    /// Returns whether a worker may fetch a prefix from another.
    pub(super) fn may_fetch(&self) -> bool {
        !matches!(self.fetch, FetchRule::Off)
    }

    /// Returns whether the worker would fetch the prefix, by the true costs.
    pub(super) fn fetches(&self, worker: usize, lengths: PromptLengths) -> bool {
        self.work(&self.profile, worker, lengths).fetches
    }

    /// Predicts the microseconds of a request's prompt on a worker. `None` where the workers' models predict them.
    pub(super) fn prefill_us(&self, request: usize, worker: usize, lengths: PromptLengths) -> Option<f64> {
        let oracle = self.oracle.as_ref()?;
        let work = self.work(&oracle.profile, worker, lengths);
        Some(work.us * self.error(request, oracle.sigma))
    }

    /// Predicts the microseconds to take a prompt over that was computed elsewhere.
    pub(super) fn transfer_us(&self, request: usize, prompt: u32) -> Option<f64> {
        let oracle = self.oracle.as_ref()?;
        Some(oracle.profile.transfer_us(prompt) as f64 * self.error(request, oracle.sigma))
    }

    /// Predicts the microseconds between tokens with so many requests decoding on the worker that hold so many tokens.
    pub(super) fn step_us(&self, request: usize, worker: usize, batch: u32, resident: u64) -> Option<f64> {
        let oracle = self.oracle.as_ref()?;
        let step = oracle.profile.step_us(batch, resident) as f64 / self.speeds[worker];
        Some(step * self.error(request, oracle.sigma))
    }

    /// Predicts the microseconds until the prompts that other routers have sent to a worker are computed. Only their
    /// totals are known, so each is taken for the average one.
    pub(super) fn waiting_us(&self, worker: usize, others: &LoadTotals) -> f64 {
        let prompts = u64::from(others.requests.saturating_sub(others.decoding));
        let (Some(oracle), Some(uncached)) = (&self.oracle, others.prefill_tokens.checked_div(prompts))
        else {
            return 0.0;
        };
        let waiting_tokens = others.prompt_tokens.saturating_sub(others.decoding_tokens);
        let prompt = (waiting_tokens / prompts).max(uncached);
        let tokens = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let each_us = oracle
            .profile
            .prefill_us(tokens(prompt), tokens(prompt - uncached));
        each_us as f64 * prompts as f64 / self.speeds[worker]
    }

    fn work(&self, profile: &Profile, worker: usize, lengths: PromptLengths) -> Work {
        let PromptLengths { prompt, own, best } = lengths;
        let [device, host, own] = own;
        let loaded = profile.load_us(host - device) + profile.disk_load_us(own - host);
        // As in the engine, blocks are loaded beside the computation, layer by layer.
        let computed =
            |cached| (loaded as f64).max(profile.prefill_us(prompt, cached) as f64 / self.speeds[worker]);
        let alone = Work {
            us: computed(own),
            fetches: false,
        };
        let fetched = || Work {
            us: profile.transfer_us(best - own) as f64 + computed(best),
            fetches: true,
        };
        match self.fetch {
            _ if best <= own => alone,
            FetchRule::Off => alone,
            FetchRule::Cheapest => Some(fetched())
                .filter(|fetched| fetched.us < alone.us)
                .unwrap_or(alone),
            FetchRule::Ratio(theta) if own > 0 && f64::from(best) <= theta * f64::from(own) => alone,
            FetchRule::Ratio(_) => fetched(),
        }
    }

    /// Returns the error factor of a request's costs: the same one for every column.
    fn error(&self, request: usize, sigma: f64) -> f64 {
        if sigma == 0.0 {
            return 1.0;
        }
        let mut random = SplitMix64::of_decision(self.seed ^ (request as u64).rotate_left(32), u32::MAX);
        (sigma * normal(&mut random)).exp()
    }
}

/// Returns a uniform number in [0, 1).
pub(super) fn uniform(random: &mut SplitMix64) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Returns a standard normal number, by Box and Muller (1958).
fn normal(random: &mut SplitMix64) -> f64 {
    let (radius, angle) = (1.0 - uniform(random), uniform(random));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_configured_spread() {
        let mut random = SplitMix64::of_decision(1, 0);
        let draws: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(
            mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05,
            "{mean} {variance}"
        );
    }
}
