//! A configuration that may be put in force, and what stands in the way.

use std::sync::Arc;

use conductor_config::{Code, Config, Diagnostics, Examined, Known, Parsed};
use proxy::record::Recorder;
use proxy::{ProxyMetrics, Snapshot, SnapshotError, SnapshotSpec};
use routing::{Fleet, Generation, PolicyVersions};
use thiserror::Error;
use tracing::warn;

use super::problem::reports;
use crate::builtin;
use crate::compose::{self, BrokenPipeline};
use crate::config_source::ConfigSource;
use crate::keys;
use crate::materials::Materials;
use crate::status::ProblemReport;

/// Reads a configuration as this binary does.
///
/// # Errors
/// Every mistake.
pub(crate) fn read(source: &ConfigSource, text: &str) -> Result<Parsed, Diagnostics> {
    Config::parse(&source.name(), text, &known(source, &builtin::names()))
}

/// Reads a configuration as far as it can be read, with its mistakes.
///
/// # Errors
/// A file that is too large to be read.
pub(crate) fn examine(source: &ConfigSource, text: &str) -> Result<Examined, Diagnostics> {
    Config::examine(&source.name(), text, &known(source, &builtin::names()))
}

fn known<'n>(source: &'n ConfigSource, builtins: &'n [&'n str]) -> Known<'n> {
    Known {
        builtins,
        default_policy: builtin::DEFAULT,
        files: source,
        has_admin_key: keys::has_admin_key_here(),
    }
}

/// Logs what is odd about a configuration that is put in force.
pub(crate) fn log_warnings(warnings: &Diagnostics) {
    // Those of the policy folder are logged where they are looked for, also while the text stays the same.
    let is_of_folder = |warning: &ProblemReport| warning.code == Code::IgnoredPolicyFile.as_str();
    for warning in reports(warnings)
        .into_iter()
        .filter(|warning| !is_of_folder(warning))
    {
        let ProblemReport {
            line,
            column,
            message,
            help,
            ..
        } = warning;
        warn!(line, column, help, "configuration: {message}");
    }
}

/// The request path cannot be set up as a configuration has it.
#[derive(Debug, Error)]
pub enum SetUpError {
    /// A pipeline cannot be made.
    #[error(transparent)]
    Pipeline(#[from] BrokenPipeline),
    /// The request path refuses the rest.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// A snapshot of what the configuration says. `component` finds the versions of one; every component that decides on a route has
/// some.
pub(crate) fn snapshot(
    previous: Option<&Snapshot>,
    (config, materials, fleet): (&Config, &Materials, &Fleet),
    component: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
    generation: Generation,
    (metrics, recorder): (&ProxyMetrics, &Arc<Recorder>),
) -> Result<Snapshot, SetUpError> {
    let policy = |name: &str| compose::policy_versions(config, metrics, name, &component);
    let decides = |name: &str| -> Result<Arc<PolicyVersions>, BrokenPipeline> {
        let policy = policy(name)?;
        Ok(policy.expect("a configuration is refused while one of its policies has no version"))
    };
    let routes = config
        .routes
        .iter()
        .map(|route| compose::route_spec(route, decides, policy));
    let spec = SnapshotSpec {
        generation,
        pools: compose::pool_specs(config, materials, fleet),
        routes: routes.collect::<Result<_, _>>()?,
        models: compose::models_spec(config, &materials.tokenizers),
        limits: compose::request_limits(config),
        edge: compose::edge_spec(config, &materials.certificates),
        record: compose::record_spec(config, recorder),
        clients: compose::client_specs(config, &materials.keys),
        decision_headers: config.server.decision_headers,
        // Its labels name clients.
        metrics_on_listen: config
            .server
            .metrics_on_listen
            .unwrap_or(config.clients.is_empty()),
    };
    Ok(Snapshot::next(previous, spec, metrics)?)
}

/// Keys that are read only at start and differ now.
pub(crate) fn needs_restart(at_start: &Config, now: &Config) -> Vec<String> {
    let (was, is) = (&at_start.server, &now.server);
    let changed = [
        // Of an address there was, another can be made.
        (
            "server.admin-listen",
            was.admin_listen.is_some() != is.admin_listen.is_some(),
        ),
        (
            "server.max-connections",
            was.max_connections != is.max_connections,
        ),
        ("server.drain-delay", was.drain_delay != is.drain_delay),
        ("server.drain-timeout", was.drain_timeout != is.drain_timeout),
        ("server.policy-state", was.policy_state != is.policy_state),
        ("log.format", at_start.log.format != now.log.format),
        ("indexer", at_start.indexer != now.indexer),
        ("index.max-blocks", at_start.index != now.index),
        ("policy-cache", at_start.policy_cache != now.policy_cache),
    ];
    let keys = changed.iter().filter(|(_, changed)| *changed);
    keys.map(|(key, _)| (*key).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::reload::InForce;

    /// Pool `a`, whose policy wants one column, and pool `b`, whose policy wants no tokens.
    fn pools(column: &str) -> String {
        format!(
            r#"
[policies.of-a]
pipeline = {{ scorers = [{{ feature = "{column}", weight = 1 }}] }}
[policies.of-b]
pipeline = {{ scorers = [{{ feature = "load.requests", weight = -1 }}] }}
[[pools.a.workers]]
url = "http://a:1"
[[pools.b.workers]]
url = "http://b:1"
[[routes]]
match = {{ model = "b" }}
pool = "b"
policy = "of-b"
[[routes]]
pool = "a"
policy = "of-a"
"#
        )
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let source = ConfigSource::Text(text.to_owned());
        let config = read(&source, text).expect("valid").config;
        let first = InForce::first(text.to_owned(), config, Materials::default());
        let parts = (&first.config, &first.materials, &first.fleet);
        let mut registry = Registry::default();
        let own = (&ProxyMetrics::new(&mut registry), &Recorder::new(&mut registry));
        let snapshot = snapshot(None, parts, |_| None, first.generation, own).unwrap();
        assert_eq!(snapshot.pools_without_tokenizer().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_tokenizer_is_missed_where_each_prompt_costs_a_worker_a_request() {
        let wants = pools("prefix.any-tokens");
        check(&wants, &["a"]);
        check(&pools("load.requests"), &[]);
        check(&format!("[pools.a]\ntokenize = \"off\"\n{wants}"), &[]);
        check(&format!("[models.m]\ntokenize = \"worker\"\n{wants}"), &[]);
    }
}
