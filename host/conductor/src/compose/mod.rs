//! Translation of a valid configuration to the specs of each adapter. Pure: values in, values out.

mod admission;
mod clients;
mod edge;
mod feeds;
mod pipelines;
mod record;
mod resilience;
mod sources;
mod tokens;
mod traces;
mod trials;
mod workers;

use std::collections::HashMap;
use std::sync::Arc;

use conductor_config::{Config, PdConfig, PoolConfig, RouteConfig, ServerConfig, TimeoutsConfig};
use proxy::{AssumedCache, Expectation, PdSpec, PoolSpec, RequestLimits, RouteSpec};
use routing::{Fleet, PolicyVersions, Pool, Worker};

pub(crate) use self::clients::client_specs;
pub(crate) use self::edge::{edge_spec, serve_limits};
pub(crate) use self::feeds::feed_plan;
pub(crate) use self::pipelines::{BrokenPipeline, PipelineWatches, policy_reports, policy_versions};
pub(crate) use self::record::{record_files, record_spec};
pub(crate) use self::sources::{NoCluster, source_specs};
pub(crate) use self::tokens::models_spec;
pub(crate) use self::traces::{export_spec, tracing_spec};
use self::workers::member_names;
pub(crate) use self::workers::worker_specs;
use external_resources::ExternalResources;

/// Returns the pools with their workers of the fleet, which was made from this configuration. The resources were read
/// for it.
pub(crate) fn pool_specs(config: &Config, resources: &ExternalResources, fleet: &Fleet) -> Vec<PoolSpec> {
    let by_name = feeds::by_name(fleet);
    config
        .pools
        .iter()
        .map(|pool| pool_spec(pool, config, resources, &by_name))
        .collect()
}

fn pool_spec(
    pool: &PoolConfig,
    config: &Config,
    resources: &ExternalResources,
    by_name: &HashMap<&str, &Arc<Worker>>,
) -> PoolSpec {
    let names = pool.workers.iter().flat_map(member_names);
    let workers = names.filter_map(|name| by_name.get(name.as_str()).copied());
    PoolSpec {
        pool: Pool {
            name: pool.name.as_str().into(),
            workers: workers.cloned().collect(),
        },
        tokens: tokens::token_source(pool.tokenize, pool.tokenize_timeout),
        expectation: Expectation {
            until_confirmed: config.index.expect_for,
            assumed: pool.assume_cache.map(|cache| AssumedCache {
                tokens: cache.tokens,
                block_size: cache.block_size,
                lifetime: cache.lifetime,
            }),
        },
        queue_limit: pool.queue_limit as usize,
        queue_timeout: pool.queue_timeout,
        admission: pool.admission.as_ref().map(admission::admission_spec),
        keep_alive: pool.sse_keep_alive,
        adapters: workers::adapter_specs(pool),
        model_list: resilience::model_list_spec(pool),
        authorization: resources.keys.authorization(pool),
        connections: edge::connections_spec(pool, &resources.certificates),
        accept_handover: pool.accept_handover,
        isolate_prefixes: pool.isolate_prefixes,
        pd: pool
            .pd
            .as_ref()
            .map(|pd| pd_spec(pd, &pool.timeouts, &config.server)),
        health: resilience::health_spec(pool),
        scrape: resilience::scrape_spec(pool),
        retries: resilience::retry_spec(&pool.retries),
        timeouts: resilience::pool_timeouts(pool.timeouts),
    }
}

fn pd_spec(pd: &PdConfig, pool: &TimeoutsConfig, server: &ServerConfig) -> PdSpec {
    PdSpec {
        dialect: pd.dialect,
        alone: pd.alone,
        connect_timeout: pd
            .connect_timeout
            .or(pool.connect)
            .unwrap_or(server.connect_timeout),
        prefill_timeout: pd
            .prefill_timeout
            .or(pool.first_byte)
            .unwrap_or(server.first_byte_timeout),
        first_token_timeout: pd
            .first_token_timeout
            .or(pool.first_token)
            .or(pool.first_byte)
            .unwrap_or(server.first_byte_timeout),
        idle_timeout: pd.idle_timeout.or(pool.idle).unwrap_or(server.idle_timeout),
    }
}

/// Returns a route and the policies that decide for it; `policy` finds them, and `find` those that may not be there.
pub(crate) fn route_spec<E>(
    route: &RouteConfig,
    policy: impl Fn(&str) -> Result<Arc<PolicyVersions>, E>,
    find: impl Fn(&str) -> Result<Option<Arc<PolicyVersions>>, E>,
) -> Result<RouteSpec, E> {
    Ok(RouteSpec {
        models: route.matches.models.clone(),
        path: route.matches.path.clone(),
        headers: route
            .matches
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        pool: route.pool.clone(),
        policy: policy(&route.policy)?,
        prefill_policy: route.prefill_policy.as_deref().map(&policy).transpose()?,
        decode_policy: route.decode_policy.as_deref().map(&policy).transpose()?,
        trials: trials::trial_spec(route, &policy, find)?,
        objectives: admission::objectives(route.objectives),
    })
}

/// Returns the limits of every request.
pub(crate) fn request_limits(config: &Config) -> RequestLimits {
    let server = &config.server;
    RequestLimits {
        body_bytes: usize::try_from(server.request_body_limit).unwrap_or(usize::MAX),
        connect_timeout: server.connect_timeout,
        first_byte_timeout: server.first_byte_timeout,
        idle_timeout: server.idle_timeout,
        first_token_timeout: None,
        request_timeout: server.request_timeout,
        attempts: server.attempts,
    }
}

#[cfg(test)]
mod tests;
