//! Workers of sources outside the file: laid over the file's, under the changes over HTTP.

use std::time::Instant;

use admin_views::{ChangeCause, ChangeKind};
use conductor_config::Config;
use observability::error_chain;
use tracing::{debug, error, info, warn};
use worker_discovery::{LeftOut, SourceWorkers, lay_over};

use super::refused_workers::RefusedWorkers;
use super::{Candidate, Reloader};

/// Most workers that are left out and logged at once.
const MOST_LOGGED: usize = 20;

impl Reloader {
    /// Returns the accepted workers of the sources that a file names.
    pub(super) fn discovered(&self, file: &Config) -> Vec<SourceWorkers> {
        let named = file.discovery.iter();
        self.live
            .sources
            .workers(named.map(|source| (&*source.name, &*source.pool)))
    }

    /// Applies changed workers of the sources, or changes nothing.
    pub(super) fn reload_discovered(&mut self) {
        let discovered = self.discovered(&self.active.file);
        let now = Instant::now();
        let refused = self.refused_discovery.as_ref();
        if discovered == self.active.discovered
            || refused.is_some_and(|refused| refused.covers(&discovered, now))
        {
            return;
        }
        let base = lay_over(&self.active.file, &discovered);
        let (overlays, ended) = self.active.overlays.under(&base.config);
        let before = self.active.base.left_out.clone();
        let candidate = |overlays| Candidate {
            discovered: discovered.clone(),
            overlays,
            ..self.active.candidate()
        };
        // A drained worker that is listed again serves no request.
        let decided = self.with_decided(&overlays, &base.config);
        let plan = match decided == overlays {
            true => self.plan(candidate(overlays), None),
            false => self
                .plan(candidate(decided), None)
                .or_else(|_| self.plan(candidate(overlays), None)),
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(refused) => {
                let error = error_chain(&refused);
                error!(
                    error,
                    "failed to apply discovered workers: the previous ones stay"
                );
                self.refused_discovery = Some(RefusedWorkers::new(discovered, now));
                return;
            }
        };
        let commit = self.commit(plan);
        self.report_overlays((!ended.is_empty()).then_some(&ended));
        self.propose_ended(&ended);
        self.log_left_out(&before);
        let generation = self.active.generation;
        if commit.config.is_empty() {
            // The first answer of a source, or its absence, changes no worker.
            debug!(
                generation = generation.0,
                "sources of workers answered: no worker changed"
            );
            return;
        }
        info!(generation = generation.0, changes = %commit.config, "applied discovered workers");
        self.journal.note(
            ChangeKind::WorkersDiscovered,
            ChangeCause::Discovery,
            generation,
            format!("discovered workers changed: {}", commit.config),
        );
    }

    /// Logs the workers that are left out since the last change.
    pub(super) fn log_left_out(&self, before: &[LeftOut]) {
        let left_out = self.active.base.left_out.iter();
        let fresh = left_out.filter(|left_out| !before.contains(left_out));
        for LeftOut { source, url, why } in fresh.take(MOST_LOGGED) {
            warn!(source, url, why, "a discovered worker is left out");
        }
    }
}
