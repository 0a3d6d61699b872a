//! Tests of the translation of configurations.

use conductor_config::{Config, MemoryLimitConfig, PolicySource as ConfiguredSource};
use kv_feed::Endpoint;
use prometheus_client::registry::Registry;
use proxy::{
    ConnectionsSpec, EdgeLimits, HealthSpec, PoolTimeouts, ProbeSpec, ProxyMetrics, RetrySpec, ScrapeSpec,
    StopRule, TokenizingLimits,
};
use routing::{CircuitSpec, DpRank, Fleet, WorkerId};

use super::*;
use external_resources::Certificates;
use external_resources::Keys;
use external_resources::Tokenizers;
use local_files::ConfigSource;
use policy_runtime::{PolicySettings, Sessions};
use policy_store::wanted_policies;

fn config(text: &str) -> Config {
    let source = ConfigSource::Text(text.to_owned());
    crate::reload::read(&source, text).expect("valid").config
}

fn fleet(config: &Config) -> Fleet {
    Fleet::default().next(worker_specs(config)).0
}

#[test]
fn a_pipeline_that_cannot_be_put_together_is_an_error_and_no_panic() {
    let mut config = config(
        "[policies.mixed]\npipeline = { filters = [{ label = \"zone\", is = \"eu\" }] }\n\
         [[pools.main.workers]]\nurl = \"http://a:1\"\n[[routes]]\npool = \"main\"\npolicy = \"mixed\"\n",
    );
    let watches = PipelineWatches {
        metrics: &ProxyMetrics::new(&mut Registry::default()),
        made: std::cell::RefCell::default(),
    };
    let put_together = |config: &Config| policy_versions(config, &watches, "mixed", |_| None);
    assert!(put_together(&config).unwrap().is_some());
    let mut policies = config.policies.iter_mut();
    let source = policies.find_map(|policy| match &mut policy.source {
        ConfiguredSource::Pipeline(pipeline) => Some(&mut pipeline.spec),
        _ => None,
    });
    let filters = &mut source.unwrap().filters;
    *filters = vec![filters[0].clone(); 33];
    let broken = put_together(&config).unwrap_err();
    assert_eq!(broken.to_string(), "put the pipeline `mixed` together");
}

const RANKED: &str = r#"
[pools.main]
pd = { dialect = "mooncake-connector", alone = false, prefill-timeout = "7s", idle-timeout = "3s" }

[[pools.main.workers]]
name = "p"
url = "http://p:8000"
role = "prefill"
data-parallel = { ranks = 2, first = 4 }
kv-events = "tcp://p:5557"
kv-replay = "tcp://p:6557"

[[pools.main.workers]]
name = "q"
url = "http://q:8000"
role = "prefill"
bootstrap = "http://q-ib:9000"

[[pools.main.workers]]
name = "d"
url = "http://d:8000"
role = "decode"
data-parallel = { ranks = 2 }

[stores.cache]
kv-events = "tcp://store:1"
"#;

#[test]
fn each_rank_is_a_worker_of_its_own_at_the_same_url() {
    let specs = worker_specs(&config(RANKED));
    let seen: Vec<_> = specs
        .iter()
        .map(|spec| (&*spec.name, &*spec.url, spec.rank.map(|rank| rank.0)))
        .collect();
    assert_eq!(
        seen,
        [
            ("p@4", "http://p:8000", Some(4)),
            ("p@5", "http://p:8000", Some(5)),
            ("q", "http://q:8000", None),
            ("d@0", "http://d:8000", Some(0)),
            ("d@1", "http://d:8000", Some(1)),
        ]
    );
}

#[test]
fn prefill_workers_have_their_bootstrap_server_at_the_given_or_usual_port() {
    let check = |dialect: &str, expected: [Option<&str>; 5]| {
        let text = RANKED.replace("mooncake-connector", dialect);
        let text = match dialect {
            "nixl" => text.replace("bootstrap =", "# bootstrap ="),
            _ => text,
        };
        let specs = worker_specs(&config(&text));
        let seen: Vec<Option<&str>> = specs.iter().map(|spec| spec.bootstrap.as_deref()).collect();
        assert_eq!(seen, expected, "{dialect}");
    };
    let with = [
        Some("http://p:8998"),
        Some("http://p:8998"),
        Some("http://q-ib:9000"),
        None,
        None,
    ];
    check("mooncake-connector", with);
    check("sglang", with);
    check("nixl", [None; 5]);
}

#[test]
fn the_usual_bootstrap_server_of_a_worker_behind_tls_has_none() {
    for (url, expected) in [
        ("https://p:8443", "http://p:8998"),
        ("https://[::1]", "http://[::1]:8998"),
    ] {
        let worker = format!("workers = [{{ url = \"{url}\", role = \"prefill\" }}]");
        let specs = worker_specs(&config(&format!("[pools.main]\npd = {{}}\n{worker}\n")));
        assert_eq!(specs[0].bootstrap.as_deref(), Some(expected));
    }
}

#[test]
fn a_pool_has_its_ranks_and_splits_within_its_own_times_or_the_servers() {
    let config = config(RANKED);
    let pools = pool_specs(&config, &ExternalResources::default(), &fleet(&config));
    assert_eq!(pools[0].pool.workers.len(), 5);
    assert_eq!(
        pools[0].pd,
        Some(PdSpec {
            dialect: Some(routing::Dialect::Mooncake),
            alone: false,
            connect_timeout: config.server.connect_timeout,
            prefill_timeout: std::time::Duration::from_secs(7),
            first_token_timeout: config.server.first_byte_timeout,
            idle_timeout: std::time::Duration::from_secs(3),
        })
    );
}

#[test]
fn each_rank_has_the_feed_that_is_written_down_for_it() {
    let config = config(RANKED);
    let fleet = fleet(&config);
    let plan = feed_plan(&config, &Keys::default(), &Certificates::default(), &fleet);
    let mut workers = fleet.workers().iter();
    assert!(
        workers.all(|worker| plan.authorizations.contains_key(&worker.id())),
        "the pages of workers with given feeds are read with the pool's key too"
    );
    let given: Vec<_> = plan
        .given
        .iter()
        .map(|feed| {
            (
                &*feed.name,
                feed.endpoint.clone(),
                feed.replay.as_deref(),
                feed.rank,
            )
        })
        .collect();
    let at = |port: u16| Endpoint::Connect(format!("tcp://p:{port}"));
    assert_eq!(
        given,
        [
            ("p@4", at(5557), Some("tcp://p:6557"), Some(DpRank(4))),
            ("p@5", at(5558), Some("tcp://p:6558"), Some(DpRank(5))),
        ]
    );
    assert_ne!(plan.given[0].worker, plan.given[1].worker);
}

#[test]
fn a_server_is_queried_once_for_all_of_its_ranks() {
    let config = config(RANKED);
    let fleet = fleet(&config);
    let plan = feed_plan(&config, &Keys::default(), &Certificates::default(), &fleet);
    let id = |name: &str| -> WorkerId {
        let mut workers = fleet.workers().iter();
        workers
            .find(|worker| &*worker.spec().name == name)
            .expect(name)
            .id()
    };
    let targets: Vec<_> = plan
        .targets
        .iter()
        .map(|target| {
            let publishers = target.publishers.iter();
            let publishers: Vec<_> = publishers.map(|one| (one.worker, one.rank)).collect();
            (&*target.name, &*target.url, publishers)
        })
        .collect();
    assert_eq!(
        targets,
        [
            ("q", "http://q:8000", vec![(id("q"), None)]),
            (
                "d",
                "http://d:8000",
                vec![(id("d@0"), Some(DpRank(0))), (id("d@1"), Some(DpRank(1)))]
            ),
        ]
    );
    assert_eq!(plan.stores[0].workers.len(), 5);
}

#[test]
fn a_worker_behind_https_is_queried_for_its_feeds() {
    let config = config("[[pools.main.workers]]\nname = \"w\"\nurl = \"https://w:1\"\n");
    let plan = feed_plan(
        &config,
        &Keys::default(),
        &Certificates::default(),
        &fleet(&config),
    );
    assert_eq!(&*plan.targets[0].url, "https://w:1");
    assert_eq!(plan.tls.len(), 1);
}

#[test]
fn a_worker_without_ranks_has_all_of_its_feeds() {
    let config = config(
        "[[pools.main.workers]]\nname = \"w\"\nurl = \"http://w:1\"\nkv-events = \"tcp://w:5557\"\ndp-size = 2\n",
    );
    let plan = feed_plan(
        &config,
        &Keys::default(),
        &Certificates::default(),
        &fleet(&config),
    );
    let given: Vec<_> = plan.given.iter().map(|feed| (&*feed.name, feed.rank)).collect();
    assert_eq!(given, [("w", Some(DpRank(0))), ("w", Some(DpRank(1)))]);
}

/// Smallest valid configuration.
const SPARSE: &str =
    "[[pools.main.workers]]\nurl = \"http://w:1\"\n[[routes]]\npool = \"main\"\npolicy = \"round-robin\"\n";

#[test]
fn of_a_pool_the_proxy_takes_by_itself_what_a_configuration_leaves_unsaid() {
    let config = config(SPARSE);
    let pool = pool_specs(&config, &ExternalResources::default(), &fleet(&config)).remove(0);
    let health = HealthSpec {
        probe: Some(ProbeSpec::default()),
        ..HealthSpec::default()
    };
    assert_eq!(pool.health, health);
    assert_eq!(pool.scrape, Some(ScrapeSpec::default()));
    assert_eq!(pool.retries, RetrySpec::default());
    assert_eq!(pool.timeouts, PoolTimeouts::default());
    let shown = |connections: &ConnectionsSpec| format!("{connections:?}");
    assert_eq!(shown(&pool.connections), shown(&ConnectionsSpec::default()));
}

#[test]
fn beside_the_pools_the_proxy_takes_by_itself_what_a_configuration_leaves_unsaid() {
    let config = config(SPARSE);
    let edge = edge_spec(&config, &Certificates::default(), 10);
    assert_eq!(edge.limits, EdgeLimits::default());
    let models = models_spec(&config, &Tokenizers::default());
    assert_eq!(models.limits, TokenizingLimits::default());
    let trials = trials::trial_spec(&config.routes[0], |_| Err(()), |_| Err(())).unwrap();
    assert_eq!(trials.rule, StopRule::default());
}

#[test]
fn a_configured_memory_limit_counts_more_than_that_of_the_control_group() {
    assert_eq!(edge::memory_limit(MemoryLimitConfig::Off), None);
    assert_eq!(edge::memory_limit(MemoryLimitConfig::Bytes(5)), Some(5));
}

#[test]
fn a_policy_runs_by_itself_as_one_of_which_a_configuration_has_only_the_name() {
    let wanted = wanted_policies(&config(SPARSE), &ConfigSource::Text(String::new())).remove(0);
    assert_eq!(wanted.settings, PolicySettings::default());
    assert_eq!(wanted.circuit, CircuitSpec::default());
    assert_eq!(wanted.sessions, Sessions::DEFAULT_LIMIT);
}
