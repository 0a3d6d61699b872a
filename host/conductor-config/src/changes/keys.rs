//! Keys that differ, by their names in the file. Each struct is taken apart in full: a field that is added to the
//! configuration does not compile until it has its key here.

use crate::{
    Config, IndexConfig, IndexerConfig, KvEventsConfig, LimitsConfig, LogConfig, MetricsConfig,
    PolicyCompileConfig, PoolConfig, PoolEventsConfig, RecordConfig, ReplicasConfig, ServerConfig,
    TokensConfig, TotalsConfig, TracesConfig,
};

/// The keys of the fields that differ; those after `else` are looked at elsewhere.
macro_rules! differing {
    ($was:expr, $is:expr, $config:ident { $($field:ident: $key:literal),+ $(,)? } else { $($elsewhere:ident),* }) => {{
        let (was, is): (&$config, &$config) = ($was, $is);
        let $config { $($field: _,)+ $($elsewhere: _),* } = is;
        let keys = [$(($key, was.$field != is.$field)),+];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }};
}

/// Lists differing keys of the tables of which there is one, and of the keys beside them.
pub(super) fn of_config(was: &Config, is: &Config) -> Vec<&'static str> {
    let own = differing!(was, is, Config {
        policy_dir: "policy-dir",
        policy_dir_allow: "policy-dir-allow",
        policy_cache: "policy-cache",
    } else { server, clients, log, metrics, index, kv_events, indexer, record, traces, replicas, policy_compile, policies, pools, discovery, tokens, models, stores, routes });
    of_server(&was.server, &is.server)
        .into_iter()
        .chain(of_small_tables(was, is))
        .chain(of_traces(was.traces.as_ref(), is.traces.as_ref()))
        .chain(of_replicas(was.replicas.as_ref(), is.replicas.as_ref()))
        .chain(own)
        .collect()
}

fn of_server(was: &ServerConfig, is: &ServerConfig) -> Vec<&'static str> {
    let limits = differing!(&was.limits, &is.limits, LimitsConfig {
        headers: "server.header-limit",
        header_count: "server.header-count",
        url: "server.url-limit",
        json_depth: "server.json-depth",
        head_timeout: "server.head-timeout",
        keep_alive_timeout: "server.keep-alive-timeout",
        body_timeout: "server.body-timeout",
        body_rate: "server.body-rate",
        response_ids: "server.response-ids",
        response_ttl: "server.response-ttl",
    } else {});
    let totals = differing!(&was.totals, &is.totals, TotalsConfig {
        buffered_bodies: "server.buffered-bodies",
        unfinished_bodies: "server.unfinished-bodies",
        connections_per_address: "server.connections-per-address",
        memory_limit: "server.memory-limit",
    } else {});
    let server = differing!(was, is, ServerConfig {
        listen: "server.listen",
        admin_listen: "server.admin-listen",
        admin_api_key: "server.admin-api-key",
        admin_key_for_reads: "server.admin-key-for-reads",
        admin_hosts: "server.admin-hosts",
        metrics_on_listen: "server.metrics-on-listen",
        request_body_limit: "server.request-body-limit",
        trusted_fronts: "server.trusted-fronts",
        tls: "server.tls",
        admin_tls: "server.admin-tls",
        http2: "server.http2",
        cors: "server.cors",
        drain_delay: "server.drain-delay",
        drain_timeout: "server.drain-timeout",
        connect_timeout: "server.connect-timeout",
        first_byte_timeout: "server.first-byte-timeout",
        idle_timeout: "server.idle-timeout",
        request_timeout: "server.request-timeout",
        attempts: "server.attempts",
        max_connections: "server.max-connections",
        decision_headers: "server.decision-headers",
        policy_headers: "server.policy-headers",
        policy_state: "server.policy-state",
        forward: "server.forward",
    } else { limits, totals, listen_at, admin_listen_at });
    server.chain(limits).chain(totals).collect()
}

fn of_small_tables(was: &Config, is: &Config) -> Vec<&'static str> {
    let log = differing!(&was.log, &is.log, LogConfig {
        level: "log.level",
        format: "log.format",
        access: "log.access",
        access_sample: "log.access-sample",
        access_max_bytes: "log.access-max-bytes",
        access_keep: "log.access-keep",
    } else { level_at });
    let metrics = differing!(&was.metrics, &is.metrics, MetricsConfig {
        buckets: "metrics.buckets",
    } else {});
    let index = differing!(&was.index, &is.index, IndexConfig {
        max_blocks: "index.max-blocks",
        expect_for: "index.expect-for",
        fill_within: "index.fill-within",
    } else {});
    let kv_events = differing!(&was.kv_events, &is.kv_events, KvEventsConfig {
        max_frame: "kv-events.max-frame",
        max_message: "kv-events.max-message",
        feed_buffer: "kv-events.feed-buffer",
        total_buffer: "kv-events.total-buffer",
    } else {});
    let indexer = differing!(&was.indexer, &is.indexer, IndexerConfig {
        listen: "indexer.listen",
        api_key: "indexer.api-key",
        tls: "indexer.tls",
        body_limit: "indexer.body-limit",
        services: "indexer.services",
    } else { listen_at });
    let policy_compile = differing!(&was.policy_compile, &is.policy_compile, PolicyCompileConfig {
        functions: "policy-compile.functions",
        function_size: "policy-compile.function-size",
        function_locals: "policy-compile.function-locals",
        memory: "policy-compile.memory",
        cpu: "policy-compile.cpu",
        time: "policy-compile.time",
    } else {});
    let record = differing!(&was.record, &is.record, RecordConfig {
        file: "record.file",
        sample: "record.sample",
        shadow_file: "record.shadow-file",
        max_bytes: "record.max-bytes",
        keep: "record.keep",
        all_columns: "record.columns",
        prompt_blocks: "record.prompt-blocks",
        explain: "record.explain",
        explain_sample: "record.explain-sample",
        explain_header: "record.explain-header",
    } else {});
    let tokens = differing!(&was.tokens, &is.tokens, TokensConfig {
        cache: "tokens.cache",
        conversations: "tokens.conversations",
        longest: "tokens.longest",
        in_place: "tokens.in-place",
        threads: "tokens.threads",
        queue: "tokens.queue",
    } else {});
    let tables = log
        .chain(metrics)
        .chain(index)
        .chain(kv_events)
        .chain(indexer)
        .chain(policy_compile)
        .chain(record)
        .chain(tokens);
    tables.collect()
}

/// Lists differing keys of a table that need not be there.
fn of_traces(was: Option<&TracesConfig>, is: Option<&TracesConfig>) -> Vec<&'static str> {
    let (Some(was), Some(is)) = (was, is) else {
        return Vec::from_iter((was != is).then_some("traces"));
    };
    let keys = differing!(was, is, TracesConfig {
        endpoint: "traces.endpoint",
        headers: "traces.headers",
        sample: "traces.sample",
        slow: "traces.slow",
        parent_per_second: "traces.parent-per-second",
        queue: "traces.queue",
        batch: "traces.batch",
        every: "traces.every",
        gzip: "traces.compression",
        resource: "traces.resource",
    } else {});
    keys.collect()
}

/// Lists differing keys of another table that need not be there.
fn of_replicas(was: Option<&ReplicasConfig>, is: Option<&ReplicasConfig>) -> Vec<&'static str> {
    let (Some(was), Some(is)) = (was, is) else {
        return Vec::from_iter((was != is).then_some("replicas"));
    };
    let keys = differing!(was, is, ReplicasConfig {
        servers: "replicas.servers",
        fleet: "replicas.fleet",
        name: "replicas.name",
        share_every: "replicas.share-every",
        dead_after: "replicas.dead-after",
        credentials: "replicas.credentials",
        login: "replicas.user",
        agreed_copies: "replicas.agreed-copies",
        ca: "replicas.ca",
    } else {});
    keys.collect()
}

/// Lists differing keys of a pool, without its workers.
pub(super) fn of_pool(was: &PoolConfig, is: &PoolConfig) -> Vec<&'static str> {
    let keys = differing!(was, is, PoolConfig {
        tokenize: "tokenize",
        tokenize_timeout: "tokenize-timeout",
        queue_limit: "queue-limit",
        queue_timeout: "queue-timeout",
        admission: "admission",
        sse_keep_alive: "sse-keep-alive",
        assume_cache: "assume-cache",
        authorization: "authorization",
        connections: "connections",
        tls: "tls",
        pd: "pd",
        health: "health",
        scrape: "scrape",
        retries: "retries",
        model_list: "model-list",
        accept_handover: "accept-handover",
        isolate_prefixes: "isolate-prefixes",
        timeouts: "timeouts",
    } else { name, events, workers });
    let events = differing!(&was.events, &is.events, PoolEventsConfig {
        hosts: "kv-events-hosts",
        ipc: "kv-events-hosts",
        curve: "kv-curve",
    } else {});
    let mut keys: Vec<_> = keys.chain(events).collect();
    keys.dedup();
    keys
}
