//! Changes of the fleet over HTTP: overlays over the file's configuration, applied as a whole or not at all.

use admin_pages::control::{InstanceAnswer, RefusedChange};
use admin_views::{ChangeCause, ChangeKind};
use tracing::{info, warn};

use super::{Candidate, Reloader};
use runtime_overrides::{Changed, Done, Ended, EndedReport, InstanceChange, OverlayKind};

impl Reloader {
    /// Makes a change, or changes nothing.
    pub(super) fn change_instance(
        &mut self,
        change: &InstanceChange,
    ) -> Result<InstanceAnswer, RefusedChange> {
        let reason = match change {
            InstanceChange::Drain(drain) => drain.reason.clone(),
            InstanceChange::Add(_) | InstanceChange::Remove(_) => None,
        };
        self.journal.begin(ChangeCause::Api, reason);
        let (overlays, done) = self.active.overlays.change(&self.active.base.config, change)?;
        if done.changed != Changed::Nothing {
            let candidate = Candidate {
                overlays,
                ..self.active.candidate()
            };
            let plan = self.plan(candidate, None);
            let plan = plan.map_err(|refused| RefusedChange::Config(refused.into()))?;
            self.commit(plan);
            self.report_overlays(None);
            let generation = self.active.generation.0;
            info!(generation, url = done.url, "{}", done.message());
            self.note_instance(&done);
            self.propose_instance(&done.url);
        }
        let generation = self.active.generation;
        Ok(InstanceAnswer { done, generation })
    }

    fn note_instance(&self, done: &Done) {
        let kind = match done.changed {
            Changed::Added => ChangeKind::InstanceAdded,
            Changed::Role => ChangeKind::InstanceChanged,
            Changed::Removed => ChangeKind::InstanceRemoved,
            Changed::Drained => ChangeKind::WorkerDrained,
            Changed::Resumed => ChangeKind::WorkerResumed,
            Changed::Nothing => return,
        };
        let generation = self.active.generation;
        self.journal
            .note(kind, ChangeCause::Api, generation, done.message());
    }

    /// Reports the overlays and, in the same step, those that the active file or the sources have ended. `None` keeps
    /// the latter as reported before.
    pub(super) fn report_overlays(&self, ended: Option<&[Ended]>) {
        let overlays = self.active.overlays.report();
        self.metrics.overlays(&overlays);
        let ended: Option<Vec<EndedReport>> = ended.map(|ended| ended.iter().map(Ended::report).collect());
        self.log_ended(ended.as_deref().unwrap_or_default());
        self.status.change_config(|report| {
            report.overlays = overlays;
            if let Some(ended) = ended {
                report.overlays_ended = ended;
            }
        });
    }

    fn log_ended(&self, ended: &[EndedReport]) {
        for EndedReport { overlay, why } in ended {
            warn!(
                pool = overlay.pool,
                worker = overlay.name,
                url = overlay.url,
                was = overlay.kind.as_str(),
                why,
                "an overlay of an instance ended: the configuration file applies again"
            );
            if overlay.kind == OverlayKind::Drain {
                let summary = format!(
                    "`{}` of the pool `{}` drains no longer: {why}",
                    overlay.name, overlay.pool
                );
                self.journal
                    .applied(ChangeKind::WorkerResumed, self.active.generation, summary);
            }
        }
    }
}
