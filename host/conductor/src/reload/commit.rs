//! The commit of a plan: the one place where a reload changes what is active. Nothing in it can fail.

use std::sync::Arc;

use super::changes::ConfigChanges;
use super::plan::Plan;
use super::{Parts, Reloader};
use crate::live_fleet::LiveFleet;
use policy_store::{PolicyCommit, Prepared};

/// What a commit has changed.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) config: ConfigChanges,
    pub(super) policies: PolicyCommit,
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
        let (config, resources) = (&self.active.config, &self.active.resources);
        let live = &self.live;
        for watch in watches {
            watch.register();
        }
        // The same feeds would be looked up one by one, thousands of them, for each new version of a policy.
        if before.config != *config {
            live.discovery.apply(feeds);
        }
        live.recorder.apply(record);
        live.cell.store(snapshot);
        live.admin_key.set(resources.keys.admin.clone(), &config.server);
        if let Some(indexer) = &live.indexer {
            indexer.set(&resources.keys, &config.server);
        }
        // After the snapshot: whoever connects to a new socket meets the new TLS.
        live.doors.open(sockets);
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

    /// Makes the library go on from what was prepared.
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

    fn report_generation(&self) {
        let generation = self.active.generation;
        self.metrics.in_force(generation);
        self.status
            .change_config(|report| report.generation = generation.0);
    }
}
