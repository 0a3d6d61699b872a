//! Commit of a plan: the one place that changes the active configuration, at start and at each reload. It cannot fail.

use std::sync::Arc;

use super::plan::Plan;
use super::{ActiveConfig, Live, Parts, Reloader};
use crate::live_fleet::LiveFleet;
use conductor_config::ConfigChanges;
use decision_log::RecordPlan;
use policy_store::{PolicyCommit, Prepared};
use proxy::PipelineWatch;

/// Changes of a commit.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) config: ConfigChanges,
    pub(super) policies: PolicyCommit,
}

impl Live {
    /// Applies the parts of a plan that need no comparison with the configuration before.
    pub(crate) fn activate(
        &self,
        active: &ActiveConfig,
        watches: Vec<Arc<PipelineWatch>>,
        record: RecordPlan,
    ) {
        for watch in watches {
            watch.register();
        }
        self.recorder.apply(record);
        let (keys, server) = (&active.resources.keys, &active.config.server);
        self.admin_key.set(keys.admin.clone(), server);
        if let Some(indexer) = &self.indexer {
            indexer.set(keys, server);
        }
    }
}

impl Reloader {
    /// Makes a plan active for all requests that come from now on.
    pub(super) fn commit(&mut self, plan: Plan) -> Commit {
        let Plan {
            active,
            prepared,
            parts,
            sockets,
        } = plan;
        let Parts {
            snapshot,
            watches,
            log,
            record,
            feeds,
        } = parts;
        let before = std::mem::replace(&mut self.active, active);
        let config = &self.active.config;
        let live = &self.live;
        // The same feeds would be looked up one by one, thousands of them, for each new version of a policy.
        if before.config != *config {
            live.discovery.apply(feeds);
        }
        live.activate(&self.active, watches, record);
        live.cell.store(snapshot);
        // After the snapshot, so that clients of a new socket get the new TLS settings.
        live.listeners.open(sockets);
        if let Some(filter) = live
            .log
            .as_ref()
            .filter(|_| before.config.log.level != config.log.level)
        {
            filter.apply(log);
        }
        let changes = ConfigChanges::between(&before.config, config);
        let policies = prepared.map_or_else(PolicyCommit::default, |prepared| self.commit_policies(prepared));
        self.report_generation();
        Commit {
            config: changes,
            policies,
        }
    }

    /// Commits the prepared policies to the library.
    pub(super) fn commit_policies(&mut self, prepared: Prepared) -> PolicyCommit {
        let committed = self.library.commit(prepared);
        self.library
            .settle_sessions(&LiveFleet(Arc::clone(&self.live.cell)));
        committed.log();
        for swapped in &committed.swapped {
            self.metrics.policy_swapped(&swapped.policy);
        }
        for (name, _) in &committed.failed {
            self.metrics.policy_refused(name);
        }
        committed
    }

    /// Reports a router that has just been built.
    pub(crate) fn report_start(&mut self) {
        let source = self.source.name();
        self.status.change_config(|report| report.source = source);
        self.report_generation();
        // The overrides of routes were just read from their file.
        self.report_overrides(true);
        self.report_policies();
    }

    fn report_generation(&self) {
        let generation = self.active.generation;
        self.metrics.activated(generation);
        self.status
            .change_config(|report| report.generation = generation.0);
    }
}
