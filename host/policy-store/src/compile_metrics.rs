//! Metrics of the compilation of policies, read at scrape time.

use std::fmt;

use policy_runtime::PolicyEngine;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use observability::MetricPage;

/// Collector of the engine's counters. Without compiler processes or a cache, their families have no series.
#[derive(Debug)]
pub struct CompileCollector {
    engine: PolicyEngine,
}

impl CompileCollector {
    /// Registers the metrics.
    pub fn register(engine: PolicyEngine, registry: &mut Registry) {
        registry.register_collector(Box::new(Self { engine }));
    }
}

impl Collector for CompileCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut page = MetricPage::new(encoder);
        let results = self.engine.child_results().into_iter().flatten();
        page.counters(
            "conductor_policy_compilations",
            "Compiler processes, by result",
            results.map(|(result, count)| ([("result", result)], count)),
        )?;
        let cache = self.engine.cache_stats();
        let files = cache
            .iter()
            .flat_map(|cache| [("read", cache.taken), ("written", cache.written)]);
        page.counters(
            "conductor_policy_cache_files",
            "Files of compiled code read from and written to `policy-cache`",
            files.map(|(what, count)| ([("what", what)], count)),
        )?;
        page.counters(
            "conductor_policy_cache_rejected",
            "Files of `policy-cache` that were not trusted and recompiled, and rejections of the whole folder",
            cache
                .into_iter()
                .flat_map(|cache| cache.rejected)
                .map(|(why, count)| ([("why", why)], count)),
        )
    }
}
