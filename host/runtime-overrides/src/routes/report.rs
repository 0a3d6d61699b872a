//! The overrides as `/admin/policies` and the command line show them.

use conductor_config::{Config, RouteConfig};
use serde::Serialize;

use super::{RouteOverrides, RoutePolicies};

/// Override of one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OverrideReport {
    /// The route's number in the file, from 1.
    pub route: usize,
    /// Pool.
    pub pool: String,
    /// The lines that end the override without an effect once the file has them in the route's table, in place of
    /// those of the same keys.
    pub toml: String,
    /// True if it survives a restart.
    pub kept: bool,
}

impl RouteOverrides {
    /// Returns them by the routes of the file.
    pub fn report(&self, file: &Config, kept: bool) -> Vec<OverrideReport> {
        let numbered = (1..).zip(&file.routes);
        let found = numbered.filter_map(|(number, route)| self.report_one(route, number, kept));
        found.collect()
    }

    fn report_one(&self, route: &RouteConfig, number: usize, kept: bool) -> Option<OverrideReport> {
        let (now, file) = (self.now(route), RoutePolicies::of(route));
        (now != file).then(|| OverrideReport {
            route: number,
            pool: route.pool.clone(),
            toml: toml(&now, &file),
            kept,
        })
    }
}

/// Returns lines of a route's table. Policies have names that need no escapes.
///
/// Without a line, canaries or shadows that only the file has would come back. So an empty list has a line too if the
/// file's list is not empty.
fn toml(now: &RoutePolicies, file: &RoutePolicies) -> String {
    let mut lines = vec![format!("policy = \"{}\"", now.policy)];
    if !now.canaries.is_empty() || !file.canaries.is_empty() {
        let parts: u32 = now.canaries.iter().map(|canary| canary.share).sum();
        let share = |policy: &str, parts: u32| format!("\"{policy}\" = {}", f64::from(parts) / 100.0);
        let own = 10_000_u32.saturating_sub(parts);
        let mut shares = vec![share(&now.policy, own)];
        shares.extend(
            now.canaries
                .iter()
                .map(|canary| share(&canary.policy, canary.share)),
        );
        lines.push(format!("split = {{ {} }}", shares.join(", ")));
    }
    if !now.shadows.is_empty() || !file.shadows.is_empty() {
        let names: Vec<String> = now.shadows.iter().map(|shadow| format!("\"{shadow}\"")).collect();
        lines.push(format!("shadow = [{}]", names.join(", ")));
        lines.push(format!("shadow-sample = {}", now.shadow_sample));
    }
    lines.join("\n")
}
