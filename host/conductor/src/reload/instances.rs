//! Changes of the fleet that somebody asks for: overlays over the file's configuration, in force as a whole or not at all.

use routing::Generation;
use thiserror::Error;
use tracing::{info, warn};

use super::{InForce, Next, RefusedConfig, Reloader};
use crate::overlay::{ChangeError, Changed, Done, Ended, EndedReport, InstanceChange};

/// A change is in force.
#[derive(Debug)]
pub(crate) struct InstanceAnswer {
    /// What it did.
    pub(crate) done: Done,
    /// Since which generation; the one in force where it did nothing.
    pub(crate) generation: Generation,
}

/// A change is not in force.
#[derive(Debug, Error)]
pub(crate) enum RefusedChange {
    /// It makes no sense with the fleet as it is.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// What it would lead to is refused.
    #[error("failed to put the change in force")]
    Config(#[source] RefusedConfig),
}

impl Reloader {
    /// Makes a change, or changes nothing.
    pub(super) fn change_instance(
        &mut self,
        change: &InstanceChange,
    ) -> Result<InstanceAnswer, RefusedChange> {
        let InForce {
            text,
            file,
            overlays,
            materials,
            ..
        } = &self.in_force;
        let (overlays, done) = overlays.change(file, change)?;
        if done.changed != Changed::Nothing {
            let next = Next {
                text: text.clone(),
                file: file.clone(),
                overlays,
                materials: materials.clone(),
            };
            self.put_in_force(next, None).map_err(RefusedChange::Config)?;
            let generation = self.in_force.generation;
            self.metrics.in_force(generation);
            self.status
                .change_config(|report| report.generation = generation.0);
            self.tell_overlays();
            info!(generation = generation.0, url = done.url, "{}", done.message());
        }
        let generation = self.in_force.generation;
        Ok(InstanceAnswer { done, generation })
    }

    /// Tells which overlays there are.
    pub(super) fn tell_overlays(&self) {
        let overlays = self.in_force.overlays.report();
        self.metrics.overlays(&overlays);
        self.status.change_config(|report| report.overlays = overlays);
    }

    /// Tells which overlays the file in force has ended.
    pub(super) fn tell_ended(&self, ended: &[Ended]) {
        let ended: Vec<EndedReport> = ended.iter().map(Ended::report).collect();
        for EndedReport { overlay, why } in &ended {
            warn!(
                pool = overlay.pool,
                worker = overlay.name,
                url = overlay.url,
                was = overlay.kind.as_str(),
                why,
                "an instance that was changed over HTTP is the configuration file's again"
            );
        }
        self.status.change_config(|report| report.overlays_ended = ended);
    }
}
