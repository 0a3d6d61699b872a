//! Commit of a plan: the only code that changes the active configuration, at start and at each reload. It cannot fail.

use std::sync::Arc;

use super::journal::JournalRefusal;
use super::plan::Plan;
use super::{Parts, Reloader};
use crate::live_fleet::LiveFleet;
use admin_views::{ChangeCause, ChangeKind};
use conductor_config::ConfigChanges;
use policy_store::{PolicyCommit, Prepared};

/// Changes of a commit.
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
            traces,
            feeds,
            sources,
        } = parts;
        let before = std::mem::replace(&mut self.active, active);
        // They were refused beside the configuration before.
        self.refused_discovery = None;
        if let Some(agreed) = &mut self.agreed {
            agreed.note_commit();
        }
        let config = &self.active.config;
        let live = &self.live;
        // The same feeds would be looked up one by one, thousands of them, for each new version of a policy.
        let has_same_feeds = before.resources.has_same_feeds(&self.active.resources);
        if before.config != *config || !has_same_feeds {
            live.discovery.apply(feeds);
        }
        for watch in watches {
            watch.register();
        }
        live.recorder.apply(record);
        live.exporter.apply(traces);
        live.sources.apply(sources);
        live.config_hash.set(config);
        let (keys, server) = (&self.active.resources.keys, &config.server);
        let admin = keys.admin.as_ref().map(|key| key.to_sent());
        // After `off` the listener stays open until a restart, and so does its check of host names.
        let address = server.admin_listen.or_else(|| live.listeners.admin_address());
        live.admin_key.set(admin, address, server);
        if let Some(indexer) = &live.indexer {
            indexer.set(keys, server);
        }
        live.cell.store(snapshot);
        // After the snapshot, so that clients of a new socket get the new TLS settings.
        live.listeners.open(sockets);
        if before.config.log.level != config.log.level
            && let Some(filter) = &live.log
        {
            filter.apply(log);
        }
        let changes = ConfigChanges::between(&before.config, config);
        let policies = prepared.map_or_else(PolicyCommit::default, |prepared| self.commit_policies(prepared));
        // Workers that joined may have sessions of the last run.
        self.settle_sessions();
        if !before.is_idle() {
            self.count_versions(&policies);
        }
        self.report_generation();
        self.report_discovered();
        Commit {
            config: changes,
            policies,
        }
    }

    /// Commits the prepared policies to the library.
    pub(super) fn commit_policies(&mut self, prepared: Prepared) -> PolicyCommit {
        let committed = self.library.commit(prepared);
        self.settle_sessions();
        committed.log();
        committed
    }

    /// Restores the sessions of the last run whose workers are known now.
    fn settle_sessions(&self) {
        self.library
            .settle_sessions(&LiveFleet(Arc::clone(&self.live.cell)));
    }

    /// Counts new and refused versions of policies.
    pub(super) fn count_versions(&self, committed: &PolicyCommit) {
        let cause = match self.journal.cause() {
            ChangeCause::File => ChangeCause::Folder,
            cause => cause,
        };
        let generation = self.active.generation;
        for swapped in &committed.swapped {
            self.metrics.policy_swapped(&swapped.policy);
            let summary = format!("`{}` has a new version", swapped.policy);
            self.journal
                .note(ChangeKind::PolicySwapped, cause, generation, summary);
        }
        for (name, problem) in &committed.failed {
            self.metrics.policy_refused(name);
            let refusal = JournalRefusal {
                summary: format!("`{name}` keeps its version: {problem}"),
                problems: 1,
            };
            self.journal
                .refused(ChangeKind::PolicyRefused, cause, generation, refusal);
        }
    }

    fn report_discovered(&self) {
        let base = &self.active.base;
        let (origins, left_out) = (base.origins.clone(), base.left_out.clone());
        self.status.change_config(|report| {
            report.origins = Arc::new(origins);
            report.left_out = left_out;
        });
    }

    fn report_generation(&self) {
        let generation = self.active.generation;
        self.metrics.activated(generation);
        self.status
            .change_config(|report| report.generation = generation.0);
    }
}
