//! Traces of a configuration, as the spec of the exporter.

use conductor_config::Config;
use external_resources::Keys;
use request_traces::QueueLimits;
use trace_export::{CollectorSpec, ExportSpec};

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
