//! Reports of a snapshot: experiments, shadow policies, listeners of events, sources of tokens, reuse of prefixes.

use std::sync::Arc;

use experiment::TrialReport;
use routing::EventListener;

use super::Snapshot;
use crate::dispatch::pool_state::PoolState;
use crate::dispatch::shadow::ShadowReport;
use crate::observe::events::{self, EventWorkers};
use crate::observe::experiments::TrialShare;
use crate::tokens::TokenSource;

/// Prompt tokens of a pool since the start, from those that could be reused to those that were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReuse {
    /// Name of the pool.
    pub pool: Box<str>,
    /// Prompt tokens of routed requests with known tokens.
    pub prompt_tokens: u64,
    /// Of those, tokens cached at the candidate with the best match according to the index.
    pub best_tokens: u64,
    /// Of those, tokens cached at the chosen worker according to the index.
    pub matched_tokens: u64,
    /// Cached prompt tokens in the usage of workers' answers.
    pub cached_tokens: u64,
}

impl Snapshot {
    /// Returns the reuse of prompt tokens by pool.
    #[must_use]
    pub fn reuse(&self) -> Vec<PoolReuse> {
        let of = |pool: &Arc<PoolState>| {
            let tokens = &pool.metrics.prompt_tokens;
            PoolReuse {
                pool: pool.workers.name.clone(),
                prompt_tokens: tokens.prompt.get(),
                best_tokens: tokens.best_match.get(),
                matched_tokens: tokens.matched.get(),
                cached_tokens: tokens.cached.get(),
            }
        };
        self.pools.iter().map(of).collect()
    }

    /// Returns the reports of all experiments.
    #[must_use]
    pub fn trials(&self) -> Vec<TrialReport> {
        let routes = (1..).zip(&self.routes);
        let trials = routes.filter_map(|(number, route)| Some(route.policies.trial()?.report(number)));
        trials.collect()
    }

    /// Returns the experiments, as routers of one fleet share them.
    #[must_use]
    pub fn trial_shares(&self) -> Vec<TrialShare> {
        let trials = self.routes.iter().filter_map(|route| route.policies.trial());
        trials.map(TrialShare::of).collect()
    }

    /// Returns the reports of all shadow policies.
    #[must_use]
    pub fn shadows(&self) -> Vec<ShadowReport> {
        let routes = (1..).zip(&self.routes);
        let shadows = routes.filter_map(|(number, route)| Some((number, route.policies.shadows.as_ref()?)));
        shadows
            .flat_map(|(number, shadows)| shadows.report(number))
            .collect()
    }

    /// Resumes the stopped canaries of that name on every route. Returns their number.
    #[must_use]
    pub fn resume_canaries(&self, policy: &str) -> usize {
        let trials = self.routes.iter().filter_map(|route| route.policies.trial());
        trials.map(|trial| trial.resume(policy)).sum()
    }

    /// Returns the pools whose workers make the tokens of each prompt: no model has a table, and a policy needs tokens.
    pub fn pools_without_tokenizer(&self) -> impl Iterator<Item = &str> {
        let needs_tokens = |at: usize| {
            let is_worker = matches!(self.pools[at].prompts.tokens, TokenSource::Worker { .. });
            let needs_tokens = |number: usize| self.routes[number].policies.needs_tokens(0);
            let is_here = |number: &usize| self.routes[*number].pool == at;
            is_worker && (0..self.routes.len()).filter(is_here).any(needs_tokens)
        };
        let pools = self.pools.iter().enumerate();
        let pools = pools.filter(move |(at, _)| !self.tokenizing.has_models() && needs_tokens(*at));
        pools.map(|(_, pool)| &*pool.workers.name)
    }

    /// Returns the workers of all pools, once each.
    pub(super) fn event_workers(&self) -> EventWorkers<'_> {
        let workers = self.members().map(|member| &member.worker);
        workers.map(|worker| (worker.id(), worker)).collect()
    }

    /// Returns the listeners of every active policy of a route, once each.
    pub(super) fn event_listeners(&self) -> Vec<Arc<dyn EventListener>> {
        events::listeners(self.routes.iter().flat_map(|route| route.policies.all()))
    }
}
