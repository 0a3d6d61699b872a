//! Watch over pending workers, which were never reached. Logs their first failure and their entry into service, and
//! reports each entry to the source of the fleet.

use std::collections::HashMap;

use routing::WorkerId;
use tracing::{info, warn};

use crate::fleet::pool::Member;
use crate::fleet::source::{ActiveFleet, FleetSource};

/// Pending workers at the last look.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// Pending workers, each with `true` once the failure to reach it was logged.
    pending: HashMap<WorkerId, bool>,
}

impl Newcomers {
    /// Compares the fleet with the last look.
    pub(super) fn look(&mut self, fleet: &ActiveFleet, source: &impl FleetSource) {
        let is_any_pending = || fleet.members().any(|member| member.link.health.is_pending());
        if self.pending.is_empty() && !is_any_pending() {
            return;
        }
        let mut pending = HashMap::new();
        for pool in &fleet.pools {
            for member in &pool.members {
                let id = member.worker.id();
                if member.link.health.is_pending() {
                    let is_logged = pending.get(&id).or(self.pending.get(&id)).copied();
                    let is_logged = is_logged.unwrap_or(false) || report_failure(member);
                    pending.insert(id, is_logged);
                } else if self.pending.contains_key(&id) {
                    let worker = &*member.worker.spec().name;
                    info!(
                        worker,
                        pool = &*pool.name,
                        "a worker was reached for the first time and is in service"
                    );
                    source.entered_service(pool);
                }
            }
        }
        self.pending = pending;
    }
}

/// Logs the reason why a worker was not reached, where a check has failed. Returns `true` if one has.
fn report_failure(member: &Member) -> bool {
    let report = member.link.health.report(member.link.now_ms());
    if report.is_checked {
        warn!(
            worker = &*member.worker.spec().name,
            reason = report.reason,
            "a worker cannot be reached yet: it is pending, gets requests only where no worker in service is left, \
             and is checked again until it answers"
        );
    }
    report.is_checked
}
