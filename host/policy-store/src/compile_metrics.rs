//! Metrics of the compilation of policies, read at scrape time.

use std::fmt;

use policy_runtime::PolicyEngine;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use observability::MetricPage;

/// Collector of the engine's counters.
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
        if let Some(results) = self.engine.child_results() {
            page.counters(
                "conductor_policy_compilations",
                "Compiler processes, by result",
                results
                    .into_iter()
                    .map(|(result, count)| ([("result", result)], count)),
            )?;
        }
        let Some(cache) = self.engine.cache_stats() else {
            return Ok(());
        };
        let files = [("read", cache.taken), ("written", cache.written)];
        page.counters(
            "conductor_policy_cache_files",
            "Files of compiled code read from and written to `policy-cache`",
            files.into_iter().map(|(what, count)| ([("what", what)], count)),
        )?;
        page.counters(
            "conductor_policy_cache_rejected",
            "Files of `policy-cache` that were not trusted and recompiled, and rejections of the whole folder",
            cache
                .rejected
                .into_iter()
                .map(|(why, count)| ([("why", why)], count)),
        )
    }
}
