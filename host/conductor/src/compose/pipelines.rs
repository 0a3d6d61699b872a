//! Pipelines of a configuration, built from the active policies.

use std::cell::RefCell;
use std::sync::Arc;

use conductor_config::{Config, PipelineConfig};
use proxy::{Decisions, PipelineWatch, ProxyMetrics};
use routing::{
    Circuit, Pipeline, PipelineError, PipelineSpec, PolicyVersion, PolicyVersions, hex, scores_singly,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use policy_store::{
    PipelineDecisions, PipelineReport, PolicyLibrary, PolicyReport, pipeline_of, shadow_name, shadowed,
};

/// Digits of a version's id, as of those of components.
const ID_DIGITS: usize = 12;

/// A pipeline that cannot be put together, which the checks of the configuration should have foreseen.
#[derive(Debug, Error)]
#[error("put the pipeline `{policy}` together")]
pub struct BrokenPipeline {
    policy: String,
    #[source]
    source: PipelineError,
}

/// Makes the watches of pipelines, and collects them for the commit, which registers them.
pub(crate) struct PipelineWatches<'a> {
    pub(crate) metrics: &'a ProxyMetrics,
    pub(crate) made: RefCell<Vec<Arc<PipelineWatch>>>,
}

/// Returns the policy of a name: that of `find`, or a pipeline of such ones.
pub(crate) fn policy_versions(
    config: &Config,
    watches: &PipelineWatches<'_>,
    name: &str,
    find: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
) -> Result<Option<Arc<PolicyVersions>>, BrokenPipeline> {
    if let Some(pipeline) = pipeline_of(config, name) {
        return put_together(name, pipeline, watches, find, str::to_owned).map(Some);
    }
    if let Some((of, pipeline)) = shadowed(name).and_then(|of| Some((of, pipeline_of(config, of)?))) {
        // A shadow and its scorers have a state of their own.
        let name = shadow_name(of);
        return put_together(&name, pipeline, watches, find, shadow_name).map(Some);
    }
    Ok(find(name))
}

fn put_together(
    name: &str,
    PipelineConfig { spec, .. }: &PipelineConfig,
    watches: &PipelineWatches<'_>,
    find: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
    kept_as: fn(&str) -> String,
) -> Result<Arc<PolicyVersions>, BrokenPipeline> {
    let observer = watches.metrics.watch_pipeline(name, spec, kept_as);
    watches.made.borrow_mut().push(Arc::clone(&observer));
    let pipeline = Pipeline::new(name, spec.clone(), |scorer| find(&kept_as(scorer)), observer);
    let pipeline = pipeline.map_err(|source| BrokenPipeline {
        policy: name.to_owned(),
        source,
    })?;
    let version = PolicyVersion {
        policy: Arc::new(pipeline),
        // The circuit never opens: a pipeline does not fail, its scorers do.
        circuit: Arc::new(Circuit::default()),
        id: id(spec, |scorer| find(&kept_as(scorer))).into(),
    };
    Ok(Arc::new(PolicyVersions::new(version, [])))
}

/// Returns the id of a pipeline with these scorers.
fn id(spec: &PipelineSpec, find: impl Fn(&str) -> Option<Arc<PolicyVersions>>) -> String {
    let versions = spec.scorers().filter_map(find);
    let made_of = versions.fold(format!("{spec:?}"), |made_of, versions| {
        let mut fit = versions.iter().filter(|version| scores_singly(&*version.policy));
        made_of + fit.next().map_or("", |version| &version.id)
    });
    let mut id = hex(&Sha256::digest(made_of));
    id.truncate(ID_DIGITS);
    id
}

/// Returns the state of every policy: the components, then the pipelines.
pub(crate) fn policy_reports(
    config: &Config,
    library: &PolicyLibrary,
    metrics: &ProxyMetrics,
) -> Vec<PolicyReport> {
    let pipelines = config.policies.iter().filter_map(|policy| {
        let pipeline = policy.pipeline()?;
        let id = id(&pipeline.spec, |name| library.versions(name, None));
        let report = PipelineReport::of(pipeline);
        let decided = metrics.decisions_of(&policy.name);
        let decided = Arc::new(PipelineCounter(decided));
        Some(PolicyReport::of_pipeline(&policy.name, &id, report, decided))
    });
    library.report().into_iter().chain(pipelines).collect()
}

/// Decisions of a pipeline, as the request path counts them.
#[derive(Debug)]
struct PipelineCounter(Decisions);

impl PipelineDecisions for PipelineCounter {
    fn count(&self) -> u64 {
        self.0.count()
    }
}
