//! Traces of a configuration, as the specs of the request path and of the exporter.

use std::sync::Arc;

use conductor_config::Config;
use external_resources::Keys;
use proxy::TracingSpec;
use request_traces::{ForcedBudget, QueueLimits, SamplingRule};
use trace_export::{CollectorSpec, ExportSpec, TraceExporter};

/// Returns the settings of traces on the request path. `None` where there are none.
pub(crate) fn tracing_spec(config: &Config, exporter: &TraceExporter) -> Option<Arc<TracingSpec>> {
    let traces = config.traces.as_ref()?;
    Some(Arc::new(TracingSpec {
        queue: Arc::clone(exporter.queue()),
        ids: exporter.ids(),
        rule: SamplingRule::new(traces.sample, traces.slow),
        forced: ForcedBudget::new(traces.parent_per_second),
    }))
}

/// Returns the collector of traces. `None` where there are none.
pub(crate) fn export_spec(config: &Config, keys: &Keys) -> Option<ExportSpec> {
    let traces = config.traces.as_ref()?;
    let resource = traces.resource.iter();
    Some(ExportSpec {
        collector: CollectorSpec {
            endpoint: traces.endpoint.as_str().into(),
            headers: keys.trace_headers().clone(),
            gzip: traces.gzip,
            resource: resource
                .map(|attribute| (attribute.name.as_str().into(), attribute.value.as_str().into()))
                .collect(),
        },
        limits: QueueLimits {
            traces: traces.queue as usize,
            batch: traces.batch.min(traces.queue) as usize,
            every: traces.every,
        },
    })
}
