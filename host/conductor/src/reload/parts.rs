//! Parts of a plan: the next snapshot, log filter, decision log and event feeds.

use std::cell::RefCell;
use std::sync::Arc;

use admin_pages::control::PlanStep;
use decision_log::{RecordPlan, Recorder};
use proxy::{PipelineWatch, ProxyMetrics, Snapshot, SnapshotPlan, SnapshotSpec};
use routing::PolicyVersions;
use trace_export::{ExportPlan, TraceExporter};
use worker_sources::{SourcesPlan, WorkerSources};

use super::{ActiveConfig, RefusedConfig, RefusedPlan, Steps};
use crate::compose::{self, BrokenPipeline, PipelineWatches};
use kv_plane::{CheckedFeeds, Discovery};
use local_files::ConfigSource;
use logging::ParsedFilter;

/// Parts that a configuration changes other than sockets and policies. None of them is active, and none can fail any
/// more.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) snapshot: SnapshotPlan,
    /// Watches of the snapshot's pipelines.
    pub(crate) watches: Vec<Arc<PipelineWatch>>,
    pub(crate) log: ParsedFilter,
    pub(crate) record: RecordPlan,
    pub(crate) traces: ExportPlan,
    pub(crate) feeds: CheckedFeeds,
    pub(crate) sources: SourcesPlan,
}

/// Inputs of a plan, which changes none of them.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub(crate) steps: &'a Steps,
    pub(crate) source: &'a ConfigSource,
    pub(crate) metrics: &'a ProxyMetrics,
    pub(crate) recorder: &'a Arc<Recorder>,
    pub(crate) exporter: &'a TraceExporter,
    pub(crate) discovery: &'a Discovery,
    pub(crate) sources: &'a WorkerSources,
    /// Limit of connections since the start.
    pub(crate) max_connections: u32,
}

impl Planner<'_> {
    /// Plans the snapshot after `previous`. `component` finds the versions of a policy. Every component that decides on
    /// a route has at least one.
    ///
    /// # Errors
    /// [`RefusedPlan`] of the first failed step. Nothing has changed then.
    pub(crate) fn plan(
        self,
        next: &ActiveConfig,
        previous: &Snapshot,
        component: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
    ) -> Result<Parts, RefusedPlan> {
        let Self {
            steps,
            source,
            discovery,
            sources,
            ..
        } = self;
        let config = &next.config;
        let log = steps.run(PlanStep::LogLevel, || {
            logging::parse(&config.log.level).map_err(RefusedConfig::LogLevel)
        })?;
        let (spec, watches) = steps.run(PlanStep::Pipelines, || {
            self.snapshot_spec(next, component)
                .map_err(RefusedConfig::Pipeline)
        })?;
        let snapshot = steps.run(PlanStep::RequestPath, || {
            SnapshotPlan::new(Some(previous), spec).map_err(RefusedConfig::Snapshot)
        })?;
        let record = steps.run(PlanStep::RecordFiles, || {
            let files = compose::record_files(config, source);
            self.recorder.plan(files).map_err(RefusedConfig::Record)
        })?;
        let traces = steps.run(PlanStep::Traces, || {
            let spec = compose::export_spec(config, &next.resources.keys);
            self.exporter.plan(spec).map_err(RefusedConfig::Traces)
        })?;
        let feeds = steps.run(PlanStep::Feeds, || {
            let resources = &next.resources;
            let feeds = compose::feed_plan(config, &resources.keys, &resources.certificates, &next.fleet);
            discovery.check(feeds).map_err(RefusedConfig::Feeds)
        })?;
        let sources = steps.run(PlanStep::Sources, || {
            let specs = compose::source_specs(config, &next.resources.keys, source);
            let specs: Result<Vec<_>, _> = specs.into_iter().collect();
            let specs = specs.map_err(RefusedConfig::NoCluster)?;
            sources.plan(specs).map_err(RefusedConfig::Sources)
        })?;
        Ok(Parts {
            snapshot,
            watches,
            log,
            record,
            traces,
            feeds,
            sources,
        })
    }

    /// Plans the snapshot before the first configuration, which has no pools and routes.
    ///
    /// # Errors
    /// [`RefusedPlan`] if the request path cannot be built.
    pub(crate) fn plan_idle(self, idle: &ActiveConfig) -> Result<SnapshotPlan, RefusedPlan> {
        let (spec, _) = self.steps.run(PlanStep::Pipelines, || {
            self.snapshot_spec(idle, |_| None)
                .map_err(RefusedConfig::Pipeline)
        })?;
        self.steps.run(PlanStep::RequestPath, || {
            SnapshotPlan::new(None, spec).map_err(RefusedConfig::Snapshot)
        })
    }

    /// Returns the request path as the configuration describes it, and the watches of its pipelines.
    fn snapshot_spec(
        self,
        next: &ActiveConfig,
        component: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
    ) -> Result<(SnapshotSpec, Vec<Arc<PipelineWatch>>), BrokenPipeline> {
        let ActiveConfig {
            config,
            resources,
            fleet,
            generation,
            ..
        } = next;
        let watches = PipelineWatches {
            metrics: self.metrics,
            made: RefCell::default(),
        };
        let policy = |name: &str| compose::policy_versions(config, &watches, name, &component);
        let decides = |name: &str| -> Result<Arc<PolicyVersions>, BrokenPipeline> {
            let policy = policy(name)?;
            Ok(policy.expect("a configuration is refused while one of its policies has no version"))
        };
        let routes = config
            .routes
            .iter()
            .map(|route| compose::route_spec(route, decides, policy));
        let spec = SnapshotSpec {
            generation: *generation,
            pools: compose::pool_specs(config, resources, fleet),
            routes: routes.collect::<Result<_, _>>()?,
            models: compose::models_spec(config, &resources.tokenizers),
            limits: compose::request_limits(config),
            edge: compose::edge_spec(config, &resources.certificates, self.max_connections),
            record: compose::record_spec(config, self.recorder),
            traces: compose::tracing_spec(config, self.exporter),
            clients: compose::client_specs(config, &resources.keys),
            // They reveal other clients' prompts and the workers' addresses to a client.
            decision_headers: config
                .server
                .decision_headers
                .unwrap_or(config.clients.is_empty()),
            policy_headers: config.server.policy_headers.clone(),
            // Its labels name clients.
            metrics_on_listen: config
                .server
                .metrics_on_listen
                .unwrap_or(config.clients.is_empty()),
        };
        Ok((spec, watches.made.into_inner()))
    }
}

#[cfg(test)]
mod tests {
    use proxy::SnapshotCell;

    use super::*;
    use crate::app::Caches;
    use crate::reload::Candidate;
    use crate::reload::read;
    use external_resources::ExternalResources;
    use runtime_overrides::Overlays;

    /// Returns pool `a`, whose policy requests one column, and pool `b`, whose policy needs no tokens.
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
        let idle = ActiveConfig::idle(&config, Overlays::default());
        let first = idle.next(Candidate {
            text: text.to_owned(),
            file: config,
            discovered: Vec::new(),
            overlays: Overlays::default(),
            resources: ExternalResources::default(),
        });
        let mut registry = prometheus_client::registry::Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let caches = Caches::start(&first.config, &mut registry).unwrap();
        let planner = Planner {
            steps: &Steps::default(),
            source: &source,
            metrics: &metrics,
            recorder: &Recorder::new(&mut registry),
            exporter: &TraceExporter::new(&mut registry),
            discovery: &caches.plane.discovery,
            sources: &WorkerSources::new(&mut registry),
            max_connections: 10,
        };
        let cell = SnapshotCell::new(planner.plan_idle(&idle).unwrap(), &metrics);
        let parts = planner.plan(&first, &cell.load(), |_| None).unwrap();
        cell.store(parts.snapshot);
        let snapshot = cell.load();
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
