//! The one writer. A thread of its own reads the configuration and the policies whenever something may have changed,
//! and puts a new snapshot in force when they are good.
//!
//! The contract of a reload: what it reads is valid and applied as a whole to new requests, or what was in force
//! stays in force and the reason is logged, counted and shown. So everything that can fail comes first: reading, loading
//! the policies, building the snapshot. Compiling happens here, never on a request's thread.

mod candidate;
mod instances;
mod policies;
mod problem;
mod routes;
mod thread;

use std::path::PathBuf;
use std::sync::Arc;

use conductor_config::{Config, Parsed};
use proxy::record::Recorder;
use proxy::{ProxyMetrics, SnapshotCell};
use routing::{Fleet, FleetChange, Generation};
use tracing::{error, info, warn};

pub(crate) use self::candidate::{SetUpError, examine, log_warnings, read, snapshot};
pub(crate) use self::instances::{InstanceAnswer, RefusedChange};
pub(crate) use self::policies::{PolicyAction, PolicyChange, RefusedPolicyChange};
pub(crate) use self::problem::RefusedConfig;
pub(crate) use self::problem::{report, reports, unavailable_policies};
pub(crate) use self::routes::{RefusedRouteChange, RouteAnswer};
pub(crate) use self::thread::Bell;
use crate::app::Doors;
use crate::compose;
use crate::config_source::ConfigSource;
use crate::discovery::Discovery;
use crate::instances::AdminKey;
use crate::materials::Materials;
use crate::metrics::ControlMetrics;
use crate::overlay::Overlays;
use crate::policy_library::{Committed, PolicyLibrary, Prepared, chain};
use crate::record;
use crate::status::{ProblemReport, Status};
use crate::telemetry::LogFilter;

/// Everything a reload works on.
pub(crate) struct Reloader {
    pub(crate) source: ConfigSource,
    pub(crate) library: PolicyLibrary,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) cell: Arc<SnapshotCell>,
    pub(crate) status: Status,
    pub(crate) metrics: ControlMetrics,
    pub(crate) proxy_metrics: ProxyMetrics,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) log: Option<LogFilter>,
    /// What whoever changes the fleet must show.
    pub(crate) admin_key: AdminKey,
    /// Moves the sockets.
    pub(crate) doors: Doors,
    /// What the router was started with: some keys are read only then.
    pub(crate) at_start: Config,
    pub(crate) in_force: InForce,
}

/// What the last successful reload put in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// The text it came from.
    pub(crate) text: String,
    /// What the text says.
    pub(crate) file: Config,
    /// What somebody asked for besides.
    pub(crate) overlays: Overlays,
    /// The file's configuration as the overlays have it.
    pub(crate) config: Config,
    pub(crate) materials: Materials,
    pub(crate) fleet: Fleet,
    pub(crate) generation: Generation,
}

impl InForce {
    /// What a router starts with: what `text` says, with the materials that it names.
    pub(crate) fn first(text: String, config: Config, materials: Materials) -> Self {
        let (fleet, _) = Fleet::default().next(compose::worker_specs(&config));
        Self {
            text,
            file: config.clone(),
            overlays: Overlays::default(),
            config,
            materials,
            fleet,
            generation: Generation(1),
        }
    }
}

/// What is to be in force next.
struct Next {
    text: String,
    file: Config,
    overlays: Overlays,
    materials: Materials,
}

impl Reloader {
    /// The files and folders that matter.
    fn paths(&self) -> Vec<PathBuf> {
        let config = &self.in_force.config;
        let mut paths: Vec<PathBuf> = self.source.file().map(PathBuf::from).into_iter().collect();
        paths.extend(compose::policy_folder(config, &self.source));
        let policies = compose::wanted_policies(config, &self.source).into_iter();
        paths.extend(policies.filter_map(|wanted| wanted.file()));
        paths.extend(Materials::files(config, &self.source));
        paths
    }

    /// One reload. Returns whether some file seemed half-written and should be looked at again soon.
    fn reload(&mut self) -> bool {
        let mut unsettled = false;
        match self.changed_text() {
            Ok(None) => self.look_at_materials(),
            Ok(Some(text)) => match self.apply(text, &mut unsettled) {
                Ok(()) => {
                    self.tell_policies();
                    return unsettled;
                }
                Err(refused) => self.refuse(refused.problems()),
            },
            Err(refused) => self.refuse(refused.problems()),
        }
        // The configuration in force goes on, maybe with new bytes of its policies.
        let wanted = compose::wanted_policies(&self.in_force.config, &self.source);
        let prepared = self.library.prepare(wanted);
        unsettled |= prepared.is_unsettled();
        self.swap_policies(prepared);
        self.tell_policies();
        unsettled
    }

    /// The text is the one in force; what it names may be other keys, certificates or tokenizers.
    fn look_at_materials(&mut self) {
        let InForce {
            file,
            text,
            materials: before,
            ..
        } = &self.in_force;
        let materials = match Materials::read(Some(before), (file, &self.source, text)) {
            Ok(materials) if materials == *before => return self.unchanged(),
            Ok(materials) => materials,
            Err(refused) => return self.refuse(refused.problems()),
        };
        let next = Next {
            text: self.in_force.text.clone(),
            file: self.in_force.file.clone(),
            overlays: self.in_force.overlays.clone(),
            materials,
        };
        match self.put_in_force(next, None) {
            Ok(_) => {
                self.tell_in_force();
                self.metrics.reload_applied();
                let generation = self.in_force.generation.0;
                info!(generation, "files that were changed are in force");
            }
            Err(refused) => self.refuse(refused.problems()),
        }
    }

    /// The configuration's text; none where it is the one in force.
    fn changed_text(&self) -> Result<Option<String>, RefusedConfig> {
        let text = self.source.read().map_err(RefusedConfig::Read)?;
        Ok((text != self.in_force.text).then_some(text))
    }

    /// Puts a configuration in force, or changes nothing.
    fn apply(&mut self, text: String, unsettled: &mut bool) -> Result<(), RefusedConfig> {
        let parsed = read(&self.source, &text).map_err(RefusedConfig::Invalid)?;
        let Parsed {
            config: file,
            warnings,
        } = parsed;
        let (overlays, ended) = self.in_force.overlays.under(&file);
        // What overrides of routes name has to be there as well.
        let config = overlays.over(&file);
        let wanted = compose::wanted_policies(&config, &self.source);
        let prepared = self.library.prepare(wanted);
        *unsettled = prepared.is_unsettled();
        let unavailable = unavailable_policies((&config, &self.source, &text), &prepared);
        if !unavailable.is_empty() {
            return Err(RefusedConfig::Policies(unavailable));
        }
        let before = Some(&self.in_force.materials);
        let materials = Materials::read(before, (&file, &self.source, &text))?;
        let next = Next {
            text,
            file,
            overlays,
            materials,
        };
        let change = self.put_in_force(next, Some(&prepared))?;
        let committed = self.commit(prepared);
        log_warnings(&warnings);
        self.tell(&committed);
        self.tell_in_force();
        self.tell_overlays();
        self.tell_ended(&ended);
        self.tell_routes();
        self.tell_ended_routes();
        self.set_log_level();
        self.metrics.reload_applied();
        info!(
            generation = self.in_force.generation.0,
            added = change.added.len(),
            removed = change.removed.len(),
            changed = change.changed.len(),
            "configuration in force"
        );
        Ok(())
    }

    /// Puts what is next in force, or changes nothing. The policies are those in force, but for what is prepared.
    fn put_in_force(
        &mut self,
        next: Next,
        prepared: Option<&Prepared>,
    ) -> Result<FleetChange, RefusedConfig> {
        let Next {
            text,
            file,
            overlays,
            materials,
        } = next;
        let config = overlays.over(&file);
        let (fleet, change) = self.in_force.fleet.next(compose::worker_specs(&config));
        let generation = Generation(self.in_force.generation.0 + 1);
        let next = self
            .snapshot((&config, &materials, &fleet), prepared, generation)
            .map_err(RefusedConfig::Snapshot)?;
        self.discovery
            .set(compose::feed_plan(&config, &fleet))
            .map_err(RefusedConfig::Feeds)?;

        let bound = self.doors.bind(&self.in_force.config.server, &config.server);
        let bound = bound.map_err(RefusedConfig::Listen)?;

        // Nothing fails from here on.
        self.doors.open(bound);
        record::apply(&self.recorder, &config, &self.source);
        self.cell.store(next);
        let for_reads = config.server.admin_key_for_reads;
        self.admin_key.set(materials.keys.admin.clone(), for_reads);
        self.in_force = InForce {
            text,
            file,
            overlays,
            config,
            materials,
            fleet,
            generation,
        };
        Ok(change)
    }

    fn snapshot(
        &self,
        parts: (&Config, &Materials, &Fleet),
        prepared: Option<&Prepared>,
        generation: Generation,
    ) -> Result<proxy::Snapshot, SetUpError> {
        let component = |name: &str| self.library.versions(name, prepared);
        let previous = self.cell.load();
        let own = (&self.proxy_metrics, &self.recorder);
        snapshot(Some(&previous), parts, component, generation, own)
    }

    /// Puts new versions of policies in force under the configuration as it is.
    fn swap_policies(&mut self, prepared: Prepared) {
        let is_fresh = |component: &str| {
            let twin = compose::shadow_name(component);
            prepared.fresh(component).is_some() || prepared.fresh(&twin).is_some()
        };
        let config = &self.in_force.config;
        let is_fresh = |policy: &str| compose::components(config, policy).any(is_fresh);
        let mut routes = self.in_force.config.routes.iter();
        let routed = routes.any(|route| route.policies().any(is_fresh));
        if routed {
            let generation = Generation(self.in_force.generation.0 + 1);
            if let Err(error) = self.put_policies_in_force(Some(&prepared), generation) {
                // It was accepted before, with other policies only.
                return error!(error = chain(&error), "the request path refused new policies");
            }
        }
        let committed = self.commit(prepared);
        self.tell(&committed);
        if routed {
            self.tell_generation();
        }
    }

    /// What was prepared is in force: the library goes on from there.
    fn commit(&mut self, prepared: Prepared) -> Committed {
        let committed = self.library.commit(prepared);
        self.library.settle_sessions(&self.cell.load());
        committed
    }

    /// The file is, or was put back to, what is in force.
    fn unchanged(&self) {
        if self.status.config().problems.is_empty() {
            return;
        }
        info!("the configuration is again the one in force");
        self.metrics.reload_unchanged();
        self.status.change_config(|report| report.problems.clear());
    }

    fn tell_in_force(&self) {
        let InForce {
            config, generation, ..
        } = &self.in_force;
        self.metrics.in_force(*generation);
        let needs_restart = candidate::needs_restart(&self.at_start, config);
        if !needs_restart.is_empty() {
            warn!(keys = needs_restart.join(", "), "these changes need a restart");
        }
        self.status.change_config(|report| {
            report.generation = generation.0;
            report.tell(config);
            report.reloads_applied += 1;
            report.problems.clear();
            report.needs_restart = needs_restart;
        });
    }

    fn set_log_level(&self) {
        let level = &self.in_force.config.log.level;
        if let Some(Err(error)) = self.log.as_ref().map(|log| log.set(level)) {
            warn!(error = chain(&error), "kept the old log level");
        }
    }

    fn refuse(&self, problems: Vec<ProblemReport>) {
        if self.status.config().problems == problems {
            return;
        }
        for problem in &problems {
            let ProblemReport {
                severity,
                line,
                column,
                message,
                help,
                ..
            } = problem;
            let file = self.source.name();
            if *severity == "warning" {
                warn!(file, line, column, help, "{message}");
                continue;
            }
            error!(
                file,
                line, column, help, "configuration refused, the old one stays: {message}"
            );
        }
        self.metrics.reload_refused();
        self.status.change_config(|report| {
            report.reloads_refused += 1;
            report.problems = problems;
        });
    }

    fn tell(&self, committed: &Committed) {
        committed.log();
        for swapped in &committed.swapped {
            self.metrics.policy_swapped(&swapped.policy);
        }
        for (name, _) in &committed.failed {
            self.metrics.policy_refused(name);
        }
    }
}
