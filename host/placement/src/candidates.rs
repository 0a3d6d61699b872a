//! Candidates of one call: the rows that a policy chooses from, in buffers that are used again.

use routing::{Role, WorkerId};

use crate::eligible::EligibleSet;
use crate::kept_columns::KeptColumns;
use crate::matches::PrefixMatches;
use crate::view::{FleetVersion, FleetView, VersionedFleet};

/// The candidates of one call. Its buffers keep their capacity from one decision to the next.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Indices of the pool's members, row by row.
    pub members: Vec<usize>,
    /// Ids of the workers, row by row. The call's queries have them while the call lasts.
    pub ids: Vec<WorkerId>,
    /// Roles of the workers, row by row.
    pub roles: Vec<Role>,
    /// Prefix matches of the last call, if the index was queried; else a buffer.
    pub matches: PrefixMatches,
    /// Fleet whose members are all listed.
    everyone_of: Option<FleetVersion>,
    /// Feature columns.
    pub(crate) columns: KeptColumns,
}

impl Candidates {
    /// Returns the feature columns of the last policy that was called.
    #[must_use]
    pub fn numbers(&self) -> &[f64] {
        self.columns.numbers()
    }

    /// Lists the eligible workers, row by row.
    ///
    /// The list is never empty: where all of them went out of service since [`EligibleSet::find`], those that serve the
    /// model and were not tried are listed.
    pub fn list<V: FleetView + VersionedFleet>(
        &mut self,
        view: &V,
        tried: &[WorkerId],
        eligible: EligibleSet,
    ) {
        let everyone = view.fleet_version().filter(|_| eligible.is_everyone);
        // The ids may be missing: the call's queries were not dropped.
        if everyone.is_some() && everyone == self.everyone_of && self.ids.len() == self.members.len() {
            return;
        }
        self.fill(view, tried, |member| eligible.has(view, member));
        if self.ids.is_empty() {
            self.fill(view, tried, |member| eligible.has_role(view, member));
        }
        // A worker may have gone out of service since the set was found.
        self.everyone_of = everyone.filter(|_| self.members.len() == view.member_count());
    }

    fn fill<V: FleetView>(&mut self, view: &V, tried: &[WorkerId], is_candidate: impl Fn(usize) -> bool) {
        self.members.clear();
        self.ids.clear();
        self.roles.clear();
        for member in 0..view.member_count() {
            if !view.serves(member) || !is_candidate(member) {
                continue;
            }
            let worker = view.worker(member);
            if !tried.contains(&worker.id()) {
                self.members.push(member);
                self.ids.push(worker.id());
                self.roles.push(worker.role());
            }
        }
    }
}
