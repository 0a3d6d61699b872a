//! Change of a route's policies by an operator.

use conductor_config::{Config, RouteConfig};
use thiserror::Error;

use super::{RouteOverrides, RoutePolicies};
use policy_store::builtin;

/// Denominator of shares.
pub(super) const PARTS: u32 = 10_000;

/// Action on a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RouteAction {
    /// Makes it the policy of the route that tries it out.
    Promote,
    /// Makes it a shadow with this share of the requests; `None` for the route's share.
    Shadow(Option<f64>),
    /// Makes it a canary with a share of the sessions, in 1/10,000.
    Canary(u32),
    /// No override names it any more.
    Retract,
}

/// A change of one route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteChange {
    /// Name of the policy.
    pub policy: String,
    /// Action on the policy.
    pub action: RouteAction,
    /// The route's number in the file, from 1; none: the only one that it can be.
    pub route: Option<usize>,
}

/// A change that cannot be made.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RouteChangeError {
    /// The policy does not exist.
    #[error(
        "there is no policy `{0}`: neither a builtin, nor of the configuration, nor a file of the policy folder"
    )]
    NoSuchPolicy(String),
    /// The route does not exist.
    #[error("there is no route {route}: the configuration has {routes}, counted from 1")]
    NoSuchRoute {
        /// Number of the route, from 1.
        route: usize,
        /// Number of routes.
        routes: usize,
    },
    /// The route is ambiguous.
    #[error("the change fits several routes: choose one by its number from 1 ({})", list(.0))]
    WhichRoute(Vec<usize>),
    /// No route tries the policy.
    #[error("no route has a trial of `{0}`: deploy it as a shadow or a canary before it is promoted")]
    NotTried(String),
    /// The policy is the policy of the route already.
    #[error("`{policy}` is the policy of route {route} already")]
    Decides {
        /// Name of the policy.
        policy: String,
        /// Number of the route, from 1.
        route: usize,
    },
    /// The route has policies for prefill or decode workers.
    #[error("route {0} has policies for prefill or decode workers, and takes no canary")]
    ByPhase(usize),
    /// The shares of the canaries are too large.
    #[error(
        "the canaries of route {route} would have {} percent of its sessions, and its policy must keep some to be compared with",
        f64::from(*.parts) / 100.0
    )]
    Shares {
        /// Number of the route, from 1.
        route: usize,
        /// Sum of the shares, in 1/10,000.
        parts: u32,
    },
    /// No change over HTTP names the policy.
    #[error("no change over HTTP names `{0}`: its place in routes is set in the configuration file")]
    NothingToRetract(String),
}

fn list(routes: &[usize]) -> String {
    let routes: Vec<String> = routes.iter().map(ToString::to_string).collect();
    routes.join(", ")
}

impl RouteOverrides {
    /// Returns the overrides as the change has them, over the file's configuration, and the number of the route.
    /// `in_folder`: the names of the policy folder.
    ///
    /// # Errors
    /// Reason of the refusal.
    pub fn change(
        &self,
        file: &Config,
        in_folder: &[String],
        change: &RouteChange,
    ) -> Result<(Self, usize), RouteChangeError> {
        let is_known = |policy: &str| {
            builtin::find(policy).is_some()
                || in_folder.iter().any(|known| known == policy)
                || file.policies.iter().any(|known| known.name == policy)
        };
        let mut change = change.clone();
        if !is_known(&change.policy) {
            let current = builtin::current_name(&change.policy).to_owned();
            if !is_known(&current) {
                return Err(RouteChangeError::NoSuchPolicy(current));
            }
            change.policy = current;
        }
        let policy = &change.policy;
        let at = self.find(file, &change)?;
        let route = &file.routes[at];
        let mut now = self.now(route);
        match change.action {
            RouteAction::Promote => {
                now.forget(policy);
                now.policy.clone_from(policy);
            }
            RouteAction::Shadow(sample) => {
                now.set_shadow(policy);
                now.shadow_sample = sample.unwrap_or(now.shadow_sample);
            }
            RouteAction::Canary(share) => now.set_canary(policy, share),
            RouteAction::Retract => now = without(policy, now, &RoutePolicies::of(route)),
        }
        check(route, at + 1, &now)?;
        Ok((self.with(route, now), at + 1))
    }

    /// Finds the route of a change, by its place in the file.
    fn find(&self, file: &Config, change: &RouteChange) -> Result<usize, RouteChangeError> {
        let policy = &change.policy;
        let can_be = |route: &RouteConfig| {
            let now = self.now(route);
            match change.action {
                RouteAction::Promote => now.policy != *policy && now.tries(policy),
                RouteAction::Shadow(_) | RouteAction::Canary(_) => now.policy != *policy,
                RouteAction::Retract => {
                    now != RoutePolicies::of(route)
                        && without(policy, now.clone(), &RoutePolicies::of(route)) != now
                }
            }
        };
        if let Some(number) = change.route {
            let no_such = RouteChangeError::NoSuchRoute {
                route: number,
                routes: file.routes.len(),
            };
            let at = number.checked_sub(1).filter(|at| *at < file.routes.len());
            let at = at.ok_or(no_such)?;
            return can_be(&file.routes[at])
                .then_some(at)
                .ok_or_else(|| self.refusal(&file.routes[at], number, change));
        }
        let fit: Vec<usize> = (0..file.routes.len())
            .filter(|at| can_be(&file.routes[*at]))
            .collect();
        match fit[..] {
            [at] => Ok(at),
            [] => Err(match file.routes.first() {
                Some(first) => self.refusal(first, 1, change),
                None => RouteChangeError::NoSuchRoute { route: 1, routes: 0 },
            }),
            _ => Err(RouteChangeError::WhichRoute(
                fit.iter().map(|at| at + 1).collect(),
            )),
        }
    }

    /// Returns the reason for refusing a change of the route, if any.
    fn refusal(&self, route: &RouteConfig, number: usize, change: &RouteChange) -> RouteChangeError {
        let policy = change.policy.clone();
        match change.action {
            RouteAction::Retract => RouteChangeError::NothingToRetract(policy),
            RouteAction::Promote if self.now(route).policy != policy => RouteChangeError::NotTried(policy),
            _ => RouteChangeError::Decides {
                policy,
                route: number,
            },
        }
    }
}

/// Returns the policies without what was done with one of them: of it, they are those of the file.
fn without(policy: &str, mut now: RoutePolicies, file: &RoutePolicies) -> RoutePolicies {
    now.forget(policy);
    if now.policy == policy {
        now.forget(&file.policy);
        now.policy.clone_from(&file.policy);
    }
    let canary = file.canaries.iter().find(|canary| canary.policy == policy);
    let shadow = file.shadows.iter().find(|shadow| *shadow == policy);
    if now.policy != policy {
        now.canaries.extend(canary.cloned());
        now.shadows.extend(shadow.cloned());
        in_order_of(file, &mut now);
    }
    if now.shadows == file.shadows {
        now.shadow_sample = file.shadow_sample;
    }
    now
}

/// Sorts canaries and shadows like those of the file; the others come after them.
fn in_order_of(file: &RoutePolicies, now: &mut RoutePolicies) {
    fn place<'f>(mut known: impl Iterator<Item = &'f String>, policy: &str) -> usize {
        known.position(|known| known == policy).unwrap_or(usize::MAX)
    }
    let canaries = || file.canaries.iter().map(|canary| &canary.policy);
    now.canaries
        .sort_by_key(|canary| place(canaries(), &canary.policy));
    now.shadows
        .sort_by_key(|shadow| place(file.shadows.iter(), shadow));
}

/// Returns the reason for refusing these policies, if any.
fn check(route: &RouteConfig, number: usize, now: &RoutePolicies) -> Result<(), RouteChangeError> {
    let by_phase = route.prefill_policy.is_some() || route.decode_policy.is_some();
    if by_phase && !now.canaries.is_empty() {
        return Err(RouteChangeError::ByPhase(number));
    }
    let parts = now.canaries.iter().map(|canary| canary.share).sum();
    // The route's policy is what the canaries are compared with.
    if parts >= PARTS {
        return Err(RouteChangeError::Shares { route: number, parts });
    }
    Ok(())
}
