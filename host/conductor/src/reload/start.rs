//! Start: the first reload, of a router without pools and routes.
//!
//! Its plan runs the steps of every plan, and its commit is that of every reload. [`Reloader::plan_start`] holds the
//! only differences of the plan, [`Reloader::commit_start`] those of the reports. `app/sockets.rs` binds the first
//! sockets.

use admin_views::ChangeKind;
use observability::error_chain;
use policy_store::{OVERRIDES, Prepared};
use runtime_overrides::Overlays;
use tracing::error;

use super::plan::{FilePlan, ParsedText};
use super::{RefusedPlan, Reloader};

impl Reloader {
    /// Plans the first configuration.
    ///
    /// Two things differ from a reload, because no earlier version can serve meanwhile. It waits until each policy is
    /// loaded and no policy file seems half-written. If the route overrides of the last run need an unavailable policy,
    /// it plans the file without them.
    ///
    /// # Errors
    /// [`RefusedPlan`] of the first failed step.
    pub(crate) fn plan_start(&mut self, text: String) -> Result<FilePlan, RefusedPlan> {
        let mut parsed = self.parse(text.clone())?;
        let mut prepared = self.wait_for_policies(&parsed);
        if let (Err(refused), false) = (&prepared, self.active.overlays.routes().is_empty()) {
            error!(
                error = error_chain(refused.reason()),
                "the route overrides of the last run cannot be applied: the configuration file is used"
            );
            self.active.overlays = Overlays::default();
            parsed = self.parse(text)?;
            prepared = self.wait_for_policies(&parsed);
        }
        self.plan_parsed(parsed, prepared?)
    }

    fn wait_for_policies(&mut self, parsed: &ParsedText) -> Result<Prepared, RefusedPlan> {
        let source = self.source.clone();
        let wanted = || policy_store::wanted_policies(&parsed.config, &source);
        self.load_policies(parsed, |library| library.prepare_settled(wanted))
    }

    /// Makes the first plan active. A start is not counted as a reload, and its policies are not new versions.
    pub(crate) fn commit_start(&mut self, planned: FilePlan) {
        self.commit(planned.plan);
        self.report_resource_warnings();
        self.report_ended_routes();
        let generation = self.active.generation;
        self.journal
            .applied(ChangeKind::ConfigApplied, generation, "the router started");
        self.journal.applied_text(generation, &self.active.text);
        let source = self.source.name();
        let is_file = self.source.file().is_some();
        self.status.change_config(|report| {
            report.source = source;
            report.is_file = is_file;
        });
        // The overrides of routes were just read from their file. Those that are gone would be back at the next start.
        match self.has_gone_routes() {
            true => self.report_routes(),
            false => self.report_overrides(true),
        }
        self.report_policies();
    }

    /// Returns true if the file for the next start has overrides that ended or were dropped. An unreadable file may
    /// hold any, and stays.
    fn has_gone_routes(&self) -> bool {
        let overlays = &self.active.overlays;
        let (name, ending) = OVERRIDES;
        let has_file = || {
            let folder = self.library.folder();
            folder.is_some_and(|folder| matches!(folder.get(name, ending), Ok(Some(_))))
        };
        !overlays.ended_routes().is_empty() || overlays.routes().is_empty() && has_file()
    }
}
