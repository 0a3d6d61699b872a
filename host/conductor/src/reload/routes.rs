//! Changes of routes' policies over HTTP: overrides over the file's configuration, applied as a whole or not at all.

use admin_pages::control::{RefusedRouteChange, RouteAnswer};
use admin_views::{ChangeCause, ChangeKind};
use conductor_config::Config;
use routing::Generation;
use tracing::{error, info, warn};

use super::agreed::ChangeWay;
use super::{ActiveConfig, Candidate, Reloader};
use local_files::policy_folder::policies_in;
use observability::error_chain;
use policy_store::{
    OVERRIDES, Prepared, StateFolder, awaited_policies, components, shadow_name, unavailable_policies,
};
use runtime_overrides::{RouteAction, RouteChange, RouteOverrides};

impl Reloader {
    /// Makes a change, or changes nothing. Returns `None` if it needs a policy that is being compiled; it is retried
    /// once that is done.
    pub(super) fn change_route(
        &mut self,
        change: &RouteChange,
    ) -> Result<Option<RouteAnswer>, RefusedRouteChange> {
        if let Some(answer) = self.change_in_progress(change) {
            return answer;
        }
        let ActiveConfig {
            file,
            overlays,
            config,
            ..
        } = &self.active;
        let folder = policy_store::policy_folder(config, &self.source);
        let in_folder = folder.iter().flat_map(|folder| policies_in(folder));
        let in_folder: Vec<String> = in_folder.map(|(name, _)| name).collect();
        let (overlays, route) = match overlays.change_routes(file, &in_folder, change) {
            Ok(changed) => changed,
            Err(refused) => {
                let made = self.made_by_fleet(change, &refused).map(Some);
                return made.ok_or(refused.into());
            }
        };
        let config = overlays.over(file);
        let prepared = self
            .library
            .prepare(policy_store::wanted_policies(&config, &self.source));
        let unavailable = unavailable_policies(&config, &prepared);
        if let Some(first) = unavailable.first() {
            return Err(RefusedRouteChange::Unavailable(first.message.clone()));
        }
        if !awaited_policies(&config, &prepared).is_empty() {
            return Ok(None);
        }
        if change.action == RouteAction::Promote {
            self.check_promotion(&config, &prepared, route)?;
        }
        if self.fleet_has(&overlays, route) {
            return Ok(Some(self.route_answer(change, route)));
        }
        let way = self.stage_route(change, &overlays, route)?;
        if way == ChangeWay::Fleet {
            return Ok(None);
        }
        let candidate = Candidate {
            overlays,
            ..self.active.candidate()
        };
        let plan = self.plan(candidate, Some(prepared));
        let plan = plan.map_err(|refused| RefusedRouteChange::Config(refused.into()))?;
        self.commit(plan);
        self.report_routes();
        self.report_policies();
        match way {
            ChangeWay::Apart => warn!(
                route,
                "the route is changed at this router alone, which does not follow the fleet's decision on it"
            ),
            ChangeWay::Fleet | ChangeWay::Alone => self.propose_route(change, route),
        }
        Ok(Some(self.route_changed(change, route)))
    }

    /// Checks that a promoted shadow runs the version that will decide: its trial is about that version.
    fn check_promotion(
        &self,
        config: &Config,
        prepared: &Prepared,
        route: usize,
    ) -> Result<(), RefusedRouteChange> {
        let at = route.saturating_sub(1);
        let (Some(now), Some(next)) = (self.active.config.routes.get(at), config.routes.get(at)) else {
            return Ok(());
        };
        if !now.trials.shadows.contains(&next.policy) {
            return Ok(());
        }
        let version = |name: &str| {
            let versions = self.library.versions(name, Some(prepared))?;
            Some(versions.active().id.to_string())
        };
        for policy in components(config, &next.policy) {
            let (active, shadow) = (version(policy), version(&shadow_name(policy)));
            if let Some(active) = active.filter(|active| shadow.as_ref() != Some(active)) {
                let policy = policy.to_owned();
                return Err(RefusedRouteChange::VersionNotTried {
                    policy,
                    active,
                    shadow,
                });
            }
        }
        Ok(())
    }

    /// Records a change of a route, and returns its answer.
    pub(super) fn route_changed(&self, change: &RouteChange, route: usize) -> RouteAnswer {
        let message = sentence(change, route);
        let Generation(generation) = self.active.generation;
        info!(generation, policy = change.policy, route, "{message}");
        let (kind, cause) = (ChangeKind::RouteChanged, ChangeCause::Api);
        self.journal.note(kind, cause, self.active.generation, message);
        self.route_answer(change, route)
    }

    /// Returns the answer to a change that is made.
    pub(super) fn route_answer(&self, change: &RouteChange, route: usize) -> RouteAnswer {
        RouteAnswer {
            message: sentence(change, route),
            route,
            generation: self.active.generation.0,
            overrides: self.status.overrides(),
        }
    }

    /// Writes the overrides for the next run, and reports them.
    pub(super) fn report_routes(&self) {
        let routes = self.active.overlays.routes();
        let kept = self.library.folder().is_some_and(|folder| keep(folder, routes));
        self.report_overrides(kept);
    }

    /// Reports the overrides. `kept`: the file for the next run has them.
    pub(super) fn report_overrides(&self, kept: bool) {
        let ActiveConfig {
            file,
            config,
            overlays,
            ..
        } = &self.active;
        let overrides = overlays.routes().report(file, kept);
        self.status.change_config(|report| {
            report.set_active(config);
            report.overrides = overrides;
        });
    }

    /// Logs the overrides that the active file ended.
    pub(super) fn report_ended_routes(&self) {
        for policy in self.active.overlays.ended_routes() {
            warn!(
                policy,
                "the file changed a route with a route override: the override is removed"
            );
        }
    }
}

fn keep(folder: &StateFolder, routes: &RouteOverrides) -> bool {
    let (name, ending) = OVERRIDES;
    let done = match routes.is_empty() {
        true => folder.remove(name, ending),
        false => folder.put(name, ending, &routes.encode()),
    };
    if let Err(error) = &done {
        error!(
            error = error_chain(error),
            "failed to write the route overrides: a restart would lose them"
        );
    }
    done.is_ok()
}

fn sentence(change: &RouteChange, route: usize) -> String {
    let policy = &change.policy;
    match change.action {
        RouteAction::Promote => format!("`{policy}` is the policy of route {route}"),
        RouteAction::Shadow(_) => format!("`{policy}` is a shadow of route {route}"),
        RouteAction::Canary(parts) => {
            let percent = f64::from(parts) / 100.0;
            format!("`{policy}` decides {percent} percent of the sessions of route {route}")
        }
        RouteAction::Retract => format!("route {route} has of `{policy}` what the configuration file says"),
    }
}
