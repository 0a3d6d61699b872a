//! Clients of a configuration, as specs for the request path.

use conductor_config::Config;
use proxy::{ClientLimits, ClientSpec, EngineFields};

use external_resources::Keys;

/// Returns the clients, with the hashes of all their keys; `keys` were read for this configuration.
pub(crate) fn client_specs(config: &Config, keys: &Keys) -> Vec<ClientSpec> {
    let specs = config.clients.iter().map(|client| ClientSpec {
        name: client.name.as_str().into(),
        keys: keys.of_client(client).collect(),
        models: client.models.clone(),
        tenant: client.tenant.as_str().into(),
        priority: client.priority,
        weight: client.weight,
        may_set: EngineFields {
            priority: client.may_set.priority,
            rank: client.may_set.rank,
        },
        limits: ClientLimits {
            requests: client.requests_per_minute,
            tokens: client.tokens_per_minute,
            concurrent: client.concurrent,
        },
    });
    specs.collect()
}
