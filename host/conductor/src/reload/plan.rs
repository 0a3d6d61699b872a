//! A reload before its commit: everything that can fail is done, nothing that is active has changed.

use admin_pages::control::PlanStep;
use conductor_config::{Config, Diagnostics};

use super::resources::{ConfigText, read_resources};
use super::{ActiveConfig, Candidate, Parts, RefusedConfig, RefusedPlan, Reloader, read};
use crate::listeners::BoundListeners;
use external_resources::ExternalResources;
use policy_store::{PolicyLibrary, Prepared, awaited_policies, unavailable_policies};
use runtime_overrides::{Ended, Overlays};
use worker_discovery::{SourceWorkers, lay_over};

/// Parsed text, laid under the changes over HTTP.
pub(super) struct ParsedText {
    text: String,
    file: Config,
    /// Workers of the sources that the file names and that run already.
    discovered: Vec<SourceWorkers>,
    /// Configuration of the file with the discovered workers and the overlays.
    pub(super) config: Config,
    overlays: Overlays,
    warnings: Diagnostics,
    /// Overlays that the text ends.
    ended: Vec<Ended>,
}

/// Change that cannot fail any more. Dropping a plan has no effect: its sockets close and its threads end.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) active: ActiveConfig,
    /// New versions of policies; none: those that are active stay.
    pub(super) prepared: Option<Prepared>,
    pub(super) parts: Parts,
    pub(super) sockets: BoundListeners,
}

/// The plan of a new configuration text.
#[derive(Debug)]
pub(crate) struct FilePlan {
    pub(crate) plan: Plan,
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

/// Findings of a round besides its outcome.
#[derive(Debug, Default)]
pub(super) struct RoundFindings {
    /// Set if some file, also the configuration, seems half-written and should be read again soon.
    pub(super) is_unsettled: bool,
    /// Set while policies are being compiled. The compiling thread sends a command when they are there.
    pub(super) is_loading: bool,
}

impl RoundFindings {
    /// Adds the findings of prepared policies.
    pub(super) fn add(&mut self, prepared: &Prepared) {
        self.is_unsettled |= prepared.is_unsettled();
        self.is_loading |= prepared.loading().next().is_some();
    }
}

impl Reloader {
    /// Returns the configuration's text. `None` where it is the active one.
    pub(super) fn changed_text(&self) -> Result<Option<String>, RefusedPlan> {
        let text = self.file_text()?;
        Ok((text != self.active.text).then_some(text))
    }

    /// Returns the configuration's text.
    pub(super) fn file_text(&self) -> Result<String, RefusedPlan> {
        self.steps.run(PlanStep::ReadFile, || {
            self.source.read().map_err(RefusedConfig::Read)
        })
    }

    /// Plans a new text, with the policies and resources that it names.
    pub(super) fn plan_text(
        &mut self,
        text: String,
        seen: &mut RoundFindings,
    ) -> Result<Planned, RefusedPlan> {
        let parsed = self.parse(text)?;
        let wanted = policy_store::wanted_policies(&parsed.config, &self.source);
        let prepared = self.load_policies(&parsed, |library| {
            let prepared = library.prepare(wanted);
            seen.add(&prepared);
            prepared
        })?;
        let awaited = awaited_policies(&parsed.config, &prepared);
        if !awaited.is_empty() {
            return Ok(Planned::Waiting(awaited));
        }
        let plan = self.plan_parsed(parsed, prepared)?;
        Ok(Planned::Ready(Box::new(plan)))
    }

    /// Parses a text.
    pub(super) fn parse(&self, text: String) -> Result<ParsedText, RefusedPlan> {
        let parsed = self.steps.run(PlanStep::Parse, || {
            read(&self.source, &text).map_err(RefusedConfig::Invalid)
        })?;
        let file = parsed.config;
        let discovered = self.discovered(&file);
        let base = lay_over(&file, &discovered).config;
        let (overlays, ended) = self.active.overlays.under(&base);
        Ok(ParsedText {
            text,
            // Resources that overrides of routes name must exist too.
            config: overlays.over(&base),
            file,
            discovered,
            overlays,
            warnings: parsed.warnings,
            ended,
        })
    }

    /// Loads the policies of a text. `prepare` has the library load them.
    pub(super) fn load_policies(
        &mut self,
        parsed: &ParsedText,
        prepare: impl FnOnce(&mut PolicyLibrary) -> Prepared,
    ) -> Result<Prepared, RefusedPlan> {
        let (library, source) = (&mut self.library, &self.source);
        self.steps.run(PlanStep::LoadPolicies, || {
            let prepared = prepare(library);
            let unavailable = unavailable_policies(&parsed.config, &prepared);
            if !unavailable.is_empty() {
                let unavailable = Diagnostics::new(&source.name(), &parsed.text, unavailable);
                return Err(RefusedConfig::Policies(unavailable));
            }
            Ok(prepared)
        })
    }

    /// Plans a text whose policies are loaded.
    pub(super) fn plan_parsed(
        &self,
        parsed: ParsedText,
        prepared: Prepared,
    ) -> Result<FilePlan, RefusedPlan> {
        let ParsedText {
            text,
            file,
            discovered,
            overlays,
            warnings,
            ended,
            ..
        } = parsed;
        let candidate = Candidate {
            resources: self.read_resources(&file, &text)?,
            text,
            file,
            discovered,
            overlays,
        };
        Ok(FilePlan {
            plan: self.plan(candidate, Some(prepared))?,
            warnings,
            ended,
        })
    }

    /// Reads the resources that a configuration names, as they are now.
    pub(super) fn read_resources(&self, file: &Config, text: &str) -> Result<ExternalResources, RefusedPlan> {
        let before = Some(&self.active.resources);
        let named = ConfigText {
            config: file,
            source: &self.source,
            text,
        };
        read_resources(&self.steps, before, named)
    }

    /// Plans a candidate, with the `prepared` versions of policies.
    pub(super) fn plan(&self, candidate: Candidate, prepared: Option<Prepared>) -> Result<Plan, RefusedPlan> {
        let active = self.active.next(candidate);
        let live = &self.live;
        let previous = live.cell.load();
        let component = |name: &str| self.library.versions(name, prepared.as_ref());
        let planner = live.planner(&self.steps, &self.source, self.at_start.server.max_connections);
        let parts = planner.plan(&active, &previous, component)?;
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
