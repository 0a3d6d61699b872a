//! Metrics of policy memory, read at scrape time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use observability::MetricPage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::PolicyMemory;

/// Collector of the metrics of policy memory.
#[derive(Debug)]
pub struct MemoryCollector {
    memory: Arc<PolicyMemory>,
}

impl MemoryCollector {
    /// Registers the metrics.
    pub fn register(memory: &Arc<PolicyMemory>, registry: &mut Registry) {
        let memory = Arc::clone(memory);
        registry.register_collector(Box::new(Self { memory }));
    }
}

impl Collector for MemoryCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut page = MetricPage::new(encoder);
        let kept: Vec<_> = {
            let kept = self.memory.kept();
            kept.iter()
                .map(|(name, kept)| (name.clone(), Arc::clone(&kept.state)))
                .collect()
        };
        let each = || {
            kept.iter()
                .map(|(name, state)| ([("policy", name.as_str())], state))
        };
        page.gauges(
            "conductor_policy_state_keys",
            "Keys of a policy's state",
            each().map(|(label, state)| (label, state.keys() as u64)),
        )?;
        page.gauges(
            "conductor_policy_sessions",
            "Sessions in a policy's state, including expired ones that are not removed yet",
            each().map(|(label, state)| (label, state.sessions().count() as u64)),
        )?;
        page.counters(
            "conductor_policy_sessions_evicted",
            "Sessions evicted at the limit of a policy's sessions",
            each().map(|(label, state)| (label, state.sessions().evicted())),
        )?;
        let memory = &self.memory;
        let counts = [
            (
                "conductor_policy_state_written",
                "State files of policies written",
                &memory.written,
            ),
            (
                "conductor_policy_state_failures",
                "State files of policies that could not be read or written",
                &memory.failures,
            ),
            (
                "conductor_policy_state_damaged",
                "Damaged state files of policies, which were set aside",
                &memory.damaged,
            ),
        ];
        for (name, help, count) in counts {
            page.counter(name, help, count.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}
