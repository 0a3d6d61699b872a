//! Status of configuration and policies for the admin pages, written by the reload thread and read by requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use conductor_config::{Config, RouteConfig, ShareConfig};
use proxy::ListenerReport;
use serde::Serialize;

use policy_store::{IgnoredFile, ListeningReport, PolicyReport, UploadRules, add_deciding_versions};
use runtime_overrides::OverrideReport;
use runtime_overrides::{EndedReport, OverlayReport};
use worker_discovery::LeftOut;

/// A mistake in the configuration, for tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemReport {
    /// Stable kind, such as `unknown-key`.
    pub code: String,
    /// `error` or `warning`.
    pub severity: &'static str,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// Description of the mistake.
    pub message: String,
    /// Cure.
    pub help: Option<String>,
}

/// The page `/admin/config`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ConfigReport {
    /// Number of activations of configurations and policies since start.
    pub generation: u64,
    /// The file, or what stands for it.
    pub source: String,
    /// Names of the active pools.
    pub pools: Vec<String>,
    /// Applied configurations.
    pub reloads_applied: u64,
    /// Refused configurations.
    pub reloads_refused: u64,
    /// Mistakes of the newest file while an older one is active; empty if it is active.
    pub problems: Vec<ProblemReport>,
    /// Warnings about the active resources, such as tokenizers; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ProblemReport>,
    /// Keys whose new value needs a restart.
    pub needs_restart: Vec<String>,
    /// Instances that were changed over HTTP.
    pub overlays: Vec<OverlayReport>,
    /// Changes over HTTP that the newest active file ended.
    pub overlays_ended: Vec<EndedReport>,
    /// Set if the source is a file.
    #[serde(skip)]
    pub is_file: bool,
    /// Routes whose policies are other than the file has them, for `/admin/policies`.
    #[serde(skip)]
    pub overrides: Vec<OverrideReport>,
    /// Active routes, for `/status`.
    #[serde(skip)]
    pub routes: Vec<RouteReport>,
    /// Source of each discovered worker by URL, for `/status`.
    #[serde(skip)]
    pub origins: Arc<BTreeMap<String, String>>,
    /// Discovered workers that cannot be used, for `/admin/discovery`.
    #[serde(skip)]
    pub left_out: Vec<LeftOut>,
}

/// Active route.
#[derive(Debug, Clone, Default)]
pub struct RouteReport {
    /// Matched models.
    pub models: Vec<String>,
    /// Matched path.
    pub path: Option<String>,
    /// Names only: a value may be somebody's key.
    pub headers: Vec<String>,
    /// Pool.
    pub pool: String,
    /// Deciding policy.
    pub policy: String,
    /// Policy for the prefill worker instead.
    pub prefill_policy: Option<String>,
    /// Policy for the decode worker instead.
    pub decode_policy: Option<String>,
    /// Policies that decide a share of its requests beside `policy`, up to 1.
    pub canaries: Vec<(String, f64)>,
    /// Shadow policies.
    pub shadows: Vec<String>,
}

impl ConfigReport {
    /// Records a configuration that became active.
    pub fn set_active(&mut self, config: &Config) {
        self.pools = config.pools.iter().map(|pool| pool.name.clone()).collect();
        self.routes = config.routes.iter().map(RouteReport::of).collect();
    }
}

impl RouteReport {
    fn of(route: &RouteConfig) -> Self {
        let share = |canary: &ShareConfig| (canary.policy.clone(), f64::from(canary.share) / 10_000.0);
        let headers = route.matches.headers.iter();
        Self {
            models: route.matches.models.clone(),
            path: route.matches.path.clone(),
            headers: headers.map(|(name, _)| name.clone()).collect(),
            pool: route.pool.clone(),
            policy: route.policy.clone(),
            prefill_policy: route.prefill_policy.clone(),
            decode_policy: route.decode_policy.clone(),
            canaries: route.trials.canaries.iter().map(share).collect(),
            shadows: route.trials.shadows.clone(),
        }
    }
}

/// The page `/admin/policies`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PoliciesReport {
    /// Every policy that is configured or lies in the policy folder.
    pub policies: Vec<PolicyReport>,
    /// Files of the policy folder that are not loaded.
    pub ignored: Vec<IgnoredFile>,
    /// The policy folder.
    pub policy_dir: Option<PathBuf>,
    /// The policies of each route, in the order of the file.
    pub routes: Vec<RoutePoliciesReport>,
    /// Routes whose policies are other than the file has them, since an operator changed them over HTTP.
    pub overrides: Vec<OverrideReport>,
    /// Sources of the pages that explore the router. `None` before the first configuration.
    #[serde(skip)]
    pub explore: Option<Arc<ExploreSources>>,
}

/// Sources of the pages that explore the router.
#[derive(Debug)]
pub struct ExploreSources {
    /// Rules for uploads.
    pub uploads: UploadRules,
    /// Decision log, if one is written.
    pub log: Option<PathBuf>,
}

/// The policies of a route.
#[derive(Debug, Clone, Serialize)]
pub struct RoutePoliciesReport {
    /// Number, from 1.
    pub route: usize,
    /// Pool.
    pub pool: String,
    /// Deciding policy.
    pub policy: String,
    /// Policy for the prefill worker instead.
    pub prefill_policy: Option<String>,
    /// Policy for the decode worker instead.
    pub decode_policy: Option<String>,
    /// Policies that decide a share of its requests, up to 1.
    pub canaries: BTreeMap<String, f64>,
    /// Shadow policies.
    pub shadows: Vec<String>,
}

impl RoutePoliciesReport {
    fn of(route: usize, report: &RouteReport) -> Self {
        Self {
            route,
            pool: report.pool.clone(),
            policy: report.policy.clone(),
            prefill_policy: report.prefill_policy.clone(),
            decode_policy: report.decode_policy.clone(),
            canaries: report.canaries.iter().cloned().collect(),
            shadows: report.shadows.clone(),
        }
    }
}

impl PoliciesReport {
    /// Returns the page without the routes.
    #[must_use]
    pub fn of(
        policies: Vec<PolicyReport>,
        ignored: Vec<IgnoredFile>,
        policy_dir: Option<PathBuf>,
        explore: ExploreSources,
    ) -> Self {
        let absolute = |folder: PathBuf| std::path::absolute(&folder).unwrap_or(folder);
        Self {
            policies,
            ignored,
            policy_dir: policy_dir.map(absolute),
            explore: Some(Arc::new(explore)),
            ..Self::default()
        }
    }

    /// Adds the reports on events.
    #[must_use]
    pub fn with_listeners(mut self, listeners: Vec<ListenerReport>) -> Self {
        for listener in listeners {
            let mut policies = self.policies.iter_mut();
            if let Some(policy) = policies.find(|policy| policy.name == listener.policy) {
                policy.events = Some(listening(listener));
            }
        }
        self
    }
}

/// Returns the report on a policy that receives events or ticks.
fn listening(report: ListenerReport) -> ListeningReport {
    let faults = report.faults.into_iter().filter(|(_, count)| *count > 0);
    ListeningReport {
        kinds: report.kinds,
        ticks: report.ticks,
        delivered: report.delivered,
        dropped: report.dropped,
        waiting: report.waiting,
        faults: faults.collect(),
        circuit: report.circuit.as_str(),
    }
}

/// Shared by the writer and the admin pages.
#[derive(Debug, Clone, Default)]
pub struct Status {
    shared: Arc<Mutex<Reports>>,
}

#[derive(Debug, Default)]
struct Reports {
    config: ConfigReport,
    policies: PoliciesReport,
}

impl Status {
    /// Returns the newest report on the configuration.
    #[must_use]
    pub fn config(&self) -> ConfigReport {
        self.lock().config.clone()
    }

    /// Returns the newest report on the policies, with their counters as they are now.
    #[must_use]
    pub fn policies(&self) -> PoliciesReport {
        let (mut page, config) = {
            let reports = self.lock();
            (reports.policies.clone(), reports.config.clone())
        };
        page.policies = page.policies.into_iter().map(PolicyReport::counted).collect();
        add_deciding_versions(&mut page.policies);
        let routes = (1..).zip(&config.routes);
        page.routes = routes
            .map(|(number, route)| RoutePoliciesReport::of(number, route))
            .collect();
        page.overrides = config.overrides;
        page
    }

    /// Replaces the report on the policies.
    pub fn set_policies(&self, policies: PoliciesReport) {
        self.lock().policies = policies;
    }

    /// Returns the routes whose policies are other than the file has them.
    #[must_use]
    pub fn overrides(&self) -> Vec<OverrideReport> {
        self.lock().config.overrides.clone()
    }

    /// Changes the report on the configuration.
    pub fn change_config(&self, change: impl FnOnce(&mut ConfigReport)) {
        change(&mut self.lock().config);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Reports> {
        // A report is replaced whole or field by field; none of them can be left half-made by a panic.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
