//! Overrides of routes, as routers of one fleet share them: the absolute policies of each route.

use conductor_config::Config;
use serde::{Deserialize, Serialize};

use super::saved::SavedOverride;
use super::{RouteOverride, RouteOverrides, RoutePolicies, fingerprint};

/// Policies of a route that a router changed over HTTP. Without an override they are the file's.
///
/// Deserialising it validates names and shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedOverride(Option<SavedOverride>);

impl RouteOverrides {
    /// Returns the fingerprint of a route of the file, which is the same at every router with this route. `route` is
    /// its number, from 1.
    #[must_use]
    pub fn fingerprint(file: &Config, route: usize) -> Option<String> {
        let route = file.routes.get(route.checked_sub(1)?)?;
        Some(fingerprint(route))
    }

    /// Returns the policies of the route with this fingerprint, for the other routers.
    #[must_use]
    pub fn share(&self, fingerprint: &str) -> SharedOverride {
        SharedOverride(self.of(fingerprint).map(RouteOverride::save))
    }

    /// Returns the overrides with the policies that another router shares. `None` if the file has no such route.
    #[must_use]
    pub fn adopt(&self, file: &Config, route: &str, shared: &SharedOverride) -> Option<Self> {
        let route = file.routes.iter().find(|known| fingerprint(known) == route)?;
        let now = match &shared.0 {
            Some(saved) => saved.clone().policies(&|name| name),
            None => RoutePolicies::of(route),
        };
        Some(self.with(route, now))
    }
}

impl SharedOverride {
    /// Returns the names of its policies. Without an override there are none.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        let saved = self.0.iter();
        saved.flat_map(SavedOverride::names)
    }
}
