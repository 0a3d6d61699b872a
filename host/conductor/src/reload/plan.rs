//! A reload before its commit: everything that can fail is done, nothing that is active has changed.

use conductor_config::{Config, Diagnostics, Parsed};
use routing::Generation;

use super::resources::read_resources;
use super::{
    ActiveConfig, Parts, PlanStep, Planner, RefusedConfig, RefusedPlan, Reloader, awaited_policies, read,
    unavailable_policies,
};
use crate::compose;
use crate::listeners::BoundListeners;
use external_resources::ExternalResources;
use policy_store::Prepared;
use runtime_overrides::{Ended, Overlays};

/// Candidate for activation: a configuration's text and meaning, with its resources.
pub(super) struct Candidate {
    pub(super) text: String,
    pub(super) file: Config,
    pub(super) overlays: Overlays,
    pub(super) resources: ExternalResources,
    /// New versions of policies; none: those that are active stay.
    pub(super) prepared: Option<Prepared>,
}

/// Change that cannot fail any more. Dropping a plan has no effect: its sockets close and its threads end.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) active: ActiveConfig,
    pub(super) prepared: Option<Prepared>,
    pub(super) parts: Parts,
    pub(super) sockets: BoundListeners,
}

/// The plan of a new configuration text.
#[derive(Debug)]
pub(super) struct FilePlan {
    pub(super) plan: Plan,
    pub(super) warnings: Diagnostics,
    /// Overlays that the text ends.
    pub(super) ended: Vec<Ended>,
}

/// Result of planning a text.
#[derive(Debug)]
pub(super) enum Planned {
    /// The plan can be applied.
    Ready(Box<FilePlan>),
    /// The plan needs policies that are being compiled.
    Waiting(Vec<String>),
}

/// Other observations of a look at the files.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Set if some file seems half-written and should be read again soon.
    pub(super) is_unsettled: bool,
    /// Set while policies are being compiled. The compiling thread sends a command when they are there.
    pub(super) is_loading: bool,
}

impl ActiveConfig {
    /// Returns the active configuration again, for a plan that changes something else.
    pub(super) fn candidate(&self) -> Candidate {
        Candidate {
            text: self.text.clone(),
            file: self.file.clone(),
            overlays: self.overlays.clone(),
            resources: self.resources.clone(),
            prepared: None,
        }
    }
}

impl Reloader {
    /// Returns the configuration's text. `None` where it is the active one.
    pub(super) fn changed_text(&self) -> Result<Option<String>, RefusedPlan> {
        let text = self.steps.run(PlanStep::ReadFile, || {
            self.source.read().map_err(RefusedConfig::Read)
        })?;
        Ok((text != self.active.text).then_some(text))
    }

    /// Plans a new text, with the policies and resources that it names.
    pub(super) fn plan_text(&mut self, text: String, seen: &mut Seen) -> Result<Planned, RefusedPlan> {
        let source = &self.source;
        let Parsed {
            config: file,
            warnings,
        } = self.steps.run(PlanStep::Parse, || {
            read(source, &text).map_err(RefusedConfig::Invalid)
        })?;
        let (overlays, ended) = self.active.overlays.under(&file);
        // Resources that overrides of routes name must exist too.
        let config = overlays.over(&file);
        let library = &mut self.library;
        let prepared = self.steps.run(PlanStep::LoadPolicies, || {
            let prepared = library.prepare(compose::wanted_policies(&config, source));
            seen.is_unsettled = prepared.is_unsettled();
            seen.is_loading = prepared.loading().next().is_some();
            let unavailable = unavailable_policies((&config, source, &text), &prepared);
            if !unavailable.is_empty() {
                return Err(RefusedConfig::Policies(unavailable));
            }
            Ok(prepared)
        })?;
        let awaited = awaited_policies(&config, &prepared);
        if !awaited.is_empty() {
            return Ok(Planned::Waiting(awaited));
        }
        let resources = self.read_resources(&file, &text)?;
        let plan = self.plan(Candidate {
            text,
            file,
            overlays,
            resources,
            prepared: Some(prepared),
        })?;
        Ok(Planned::Ready(Box::new(FilePlan {
            plan,
            warnings,
            ended,
        })))
    }

    /// Reads the resources that a configuration names, as they are now.
    pub(super) fn read_resources(&self, file: &Config, text: &str) -> Result<ExternalResources, RefusedPlan> {
        let before = Some(&self.active.resources);
        read_resources(&self.steps, before, (file, &self.source, text))
    }

    /// Plans a candidate.
    pub(super) fn plan(&self, candidate: Candidate) -> Result<Plan, RefusedPlan> {
        let Candidate {
            text,
            file,
            overlays,
            resources,
            prepared,
        } = candidate;
        let config = overlays.over(&file);
        let (fleet, _) = self.active.fleet.next(compose::worker_specs(&config));
        let active = ActiveConfig {
            text,
            file,
            overlays,
            config,
            resources,
            fleet,
            generation: Generation(self.active.generation.0 + 1),
        };
        let live = &self.live;
        let planner = Planner {
            steps: &self.steps,
            source: &self.source,
            metrics: &live.metrics,
            recorder: &live.recorder,
            discovery: &live.discovery,
        };
        let previous = live.cell.load();
        let component = |name: &str| self.library.versions(name, prepared.as_ref());
        let parts = planner.plan(&active, Some(&previous), component)?;
        let sockets = self.steps.run(PlanStep::Sockets, || {
            let (was, is) = (&self.active.config.server, &active.config.server);
            live.listeners.bind(was, is).map_err(RefusedConfig::Listen)
        })?;
        Ok(Plan {
            active,
            prepared,
            parts,
            sockets,
        })
    }
}
