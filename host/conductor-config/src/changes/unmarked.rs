//! A configuration without the places of its text: two files with the same settings are equal, in any layout.

use crate::{
    ApiKey, AuthorizationConfig, Config, DiscoveryPlace, KeySource, Mark, ModelTokenize, NamedFile,
    PolicyConfig, PolicySource, PoolConfig,
};

/// Returns the same configuration, with every mark at the file's beginning.
pub(super) fn unmarked(config: &Config) -> Config {
    let mut config = config.clone();
    forget_key(&mut config.server.admin_api_key);
    if let Some(ApiKey::Place(key)) = &mut config.indexer.api_key {
        key.at = Mark::beginning();
    }
    let Config { server, indexer, .. } = &mut config;
    for tls in [&mut server.tls, &mut server.admin_tls, &mut indexer.tls] {
        let Some(tls) = tls else { continue };
        let files = [&mut tls.cert, &mut tls.key]
            .into_iter()
            .chain(&mut tls.client_ca);
        files.for_each(forget_file);
    }
    for client in &mut config.clients {
        forget_key(&mut client.key);
    }
    for header in config.traces.iter_mut().flat_map(|traces| &mut traces.headers) {
        header.value.at = Mark::beginning();
    }
    for source in &mut config.discovery {
        match &mut source.place {
            DiscoveryPlace::HttpSd { bearer, ca, .. } => {
                forget_key(bearer);
                ca.iter_mut().for_each(forget_file);
            }
            DiscoveryPlace::Kubernetes(kubernetes) => {
                forget_key(&mut kubernetes.token);
                kubernetes.ca.iter_mut().for_each(forget_file);
            }
            DiscoveryPlace::Dns { .. } | DiscoveryPlace::Srv { .. } | DiscoveryPlace::FileSd(_) => {}
        }
    }
    if let Some(replicas) = &mut config.replicas {
        let password = replicas.login.iter_mut().map(|login| &mut login.password_file);
        let files = replicas.credentials.iter_mut().chain(&mut replicas.ca);
        files.chain(password).for_each(forget_file);
    }
    config.log.level_at = None;
    (config.server.listen_at, config.server.admin_listen_at) = (None, None);
    config.indexer.listen_at = None;
    config.policies.iter_mut().for_each(forget_policy);
    config.pools.iter_mut().for_each(forget_pool);
    for model in &mut config.models {
        if let ModelTokenize::Local(local) = &mut model.tokenize {
            local.at = Mark::beginning();
        }
    }
    config
}

fn forget_key(key: &mut Option<KeySource>) {
    if let Some(key) = key {
        key.at = Mark::beginning();
    }
}

fn forget_file(file: &mut NamedFile) {
    file.at = Mark::beginning();
}

fn forget_policy(policy: &mut PolicyConfig) {
    policy.source_at = Mark::beginning();
    policy.params_at = None;
    policy.sha256_at = None;
    // The values themselves are in `params_json`.
    policy.param_places.clear();
    if let PolicySource::Pipeline(pipeline) = &mut policy.source {
        pipeline.scorers_at.clear();
    }
}

fn forget_pool(pool: &mut PoolConfig) {
    if let AuthorizationConfig::Key(key) = &mut pool.authorization {
        key.at = Mark::beginning();
    }
    if let Some(curve) = &mut pool.events.curve {
        curve.client.at = Mark::beginning();
    }
    if let Some(tls) = &mut pool.tls {
        tls.at = Mark::beginning();
        let identity = tls.identity.iter_mut().flat_map(|(cert, key)| [cert, key]);
        identity.chain(&mut tls.ca).for_each(forget_file);
    }
}
