//! Metrics of the sources, read at scrape time.

use std::fmt;
use std::sync::Arc;

use observability::MetricPage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::registry::Registry;

use crate::report::{SourceReport, SourceStatus};
use crate::sources::RunningSources;
use crate::state::SourceState;

/// Reader of the states.
#[derive(Debug)]
struct SourceCollector(Arc<RunningSources>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefreshLabels {
    source: String,
    result: &'static str,
}

/// Registers the metrics of the sources.
pub(crate) fn register(registry: &mut Registry, sources: &Arc<RunningSources>) {
    registry.register_collector(Box::new(SourceCollector(Arc::clone(sources))));
}

impl Collector for SourceCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let states: Vec<Arc<SourceState>> = self.0.states();
        let reports: Vec<_> = states.iter().map(|state| state.report()).collect();
        let label = |source: &str| SourceLabel {
            source: source.to_owned(),
        };
        let mut page = MetricPage::new(encoder);
        page.gauges(
            "conductor_discovery_workers",
            "Accepted workers of a source",
            reports
                .iter()
                .map(|report| (label(&report.source), report.workers as u64)),
        )?;
        page.gauges(
            "conductor_discovery_doubted_workers",
            "Workers of a source that its last answer missed and that stay for now",
            reports
                .iter()
                .map(|report| (label(&report.source), report.doubted as u64)),
        )?;
        page.gauges(
            "conductor_discovery_bad_entries",
            "Entries of a source's last answer that cannot be used",
            reports
                .iter()
                .map(|report| (label(&report.source), report.bad_entries.count as u64)),
        )?;
        let is_failing = |report: &SourceReport| u64::from(report.state == SourceStatus::Failing);
        page.gauges(
            "conductor_discovery_failing",
            "1 while the last query of a source failed",
            reports
                .iter()
                .map(|report| (label(&report.source), is_failing(report))),
        )?;
        let answered = reports
            .iter()
            .filter_map(|report| Some((report, report.last_success?)));
        page.seconds(
            "conductor_discovery_last_success_timestamp_seconds",
            "Unix time of the last good answer of a source",
            answered.map(|(report, at)| {
                let since_epoch = std::time::Duration::try_from_secs_f64(at).unwrap_or_default();
                (label(&report.source), since_epoch)
            }),
        )?;
        let counts = states.iter().zip(&reports).flat_map(|(state, report)| {
            let counts = state.counts();
            let by_result = [
                ("good", counts.good),
                ("doubted", counts.doubted),
                ("failed", counts.failed),
            ];
            by_result.map(|(result, count)| {
                let source = report.source.clone();
                (RefreshLabels { source, result }, count)
            })
        });
        page.counters(
            "conductor_discovery_refreshes",
            "Queries of a source by their result: good, doubted (half of its workers or more are missing), or failed",
            counts,
        )
    }
}
