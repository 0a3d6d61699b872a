//! Changes between two configurations, by name, and the changed keys that need a restart.

mod keys;
mod restart;
#[cfg(test)]
mod tests;
mod unmarked;

use std::collections::HashMap;
use std::fmt;

use crate::{Config, RouteConfig, WorkerConfig};
use serde::Serialize;

pub use self::restart::restart_keys;
use self::unmarked::unmarked;

/// Most names of a list that a log line shows.
const SHOWN: usize = 8;

/// Differences between two configurations. The position of a setting in the file makes no difference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ConfigChanges {
    /// Keys of tables of which there is one, such as `server.listen`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settings: Vec<&'static str>,
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    workers: NameChanges,
    /// Pools whose own keys changed, as `main.health`, not their workers.
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    pools: NameChanges,
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    policies: NameChanges,
    /// Routes by their match and their pool.
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    routes: NameChanges,
    /// Routes whose `split`, `canary` or shadows changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    splits: Vec<String>,
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    clients: NameChanges,
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    models: NameChanges,
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    stores: NameChanges,
    /// Sources of workers.
    #[serde(skip_serializing_if = "NameChanges::is_empty")]
    discovery: NameChanges,
}

impl Config {
    /// Returns the configuration without the places of its text: equal settings are equal in any layout.
    #[must_use]
    pub fn without_places(&self) -> Self {
        unmarked(self)
    }
}

/// NameChanges of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct NameChanges {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    added: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
}

impl ConfigChanges {
    /// Returns the changes from `was` to `is`.
    #[must_use]
    pub fn between(was: &Config, is: &Config) -> Self {
        let (was, is) = (&unmarked(was), &unmarked(is));
        let mut pools = NameChanges::of(&was.pools, &is.pools, |pool| pool.name.clone(), |_, _| true);
        for pool in &is.pools {
            let before = was.pools.iter().find(|before| before.name == pool.name);
            let keys = before.map(|before| keys::of_pool(before, pool));
            let key = |key| format!("{}.{key}", pool.name);
            pools.changed.extend(keys.into_iter().flatten().map(key));
        }
        let (routes, splits) = routes(&was.routes, &is.routes);
        Self {
            settings: keys::of_config(was, is),
            workers: NameChanges::of(
                &workers(was),
                &workers(is),
                |(_, worker)| worker.name.clone(),
                PartialEq::eq,
            ),
            pools,
            policies: NameChanges::of(
                &was.policies,
                &is.policies,
                |policy| policy.name.clone(),
                PartialEq::eq,
            ),
            routes,
            splits,
            clients: NameChanges::of(
                &was.clients,
                &is.clients,
                |client| client.name.clone(),
                PartialEq::eq,
            ),
            models: NameChanges::of(&was.models, &is.models, |model| model.name.clone(), PartialEq::eq),
            stores: NameChanges::of(&was.stores, &is.stores, |store| store.name.clone(), PartialEq::eq),
            discovery: NameChanges::of(
                &was.discovery,
                &is.discovery,
                |source| source.name.clone(),
                PartialEq::eq,
            ),
        }
    }

    /// Returns true if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns every worker with its pool.
fn workers(config: &Config) -> Vec<(&str, &WorkerConfig)> {
    let pools = config.pools.iter();
    let workers = pools.flat_map(|pool| pool.workers.iter().map(|worker| (pool.name.as_str(), worker)));
    workers.collect()
}

/// Returns the routes that differ, and those whose splits do.
fn routes(was: &[RouteConfig], is: &[RouteConfig]) -> (NameChanges, Vec<String>) {
    let (was, is) = (titled(was), titled(is));
    let same = |(_, was): &(String, &RouteConfig), (_, is): &(String, &RouteConfig)| {
        let trials = is.trials.clone();
        RouteConfig {
            trials,
            ..(*was).clone()
        } == **is
    };
    let mut names = NameChanges::of(&was, &is, |(title, _)| title.clone(), same);
    let splits = is.iter().filter(|(title, is)| {
        let before = was.iter().find(|(before, _)| before == title);
        before.is_some_and(|(_, before)| before.trials != is.trials)
    });
    let splits = splits.map(|(title, _)| title.clone()).collect();
    let titles = |routes: &[(String, &RouteConfig)], others: &[(String, &RouteConfig)]| -> Vec<String> {
        let stays = |title: &String| others.iter().any(|(other, _)| other == title);
        routes
            .iter()
            .map(|(title, _)| title.clone())
            .filter(stays)
            .collect()
    };
    // The first route that matches takes a request.
    if titles(&was, &is) != titles(&is, &was) {
        names.changed.push("order".to_owned());
    }
    (names, splits)
}

/// Returns the routes with titles of their match and pool. Routes with the same match are numbered from the second
/// on. The value of a header may be a key, so that only its name is shown.
fn titled(routes: &[RouteConfig]) -> Vec<(String, &RouteConfig)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut title = |route: &RouteConfig| {
        let matches = &route.matches;
        let models = (!matches.models.is_empty()).then(|| format!("model={}", matches.models.join("|")));
        let path = matches.path.as_ref().map(|path| format!("path={path}"));
        let headers = matches.headers.iter().map(|(name, _)| format!("header={name}"));
        let words: Vec<String> = models.into_iter().chain(path).chain(headers).collect();
        let words = if words.is_empty() {
            "*".to_owned()
        } else {
            words.join(" ")
        };
        let title = format!("{words} -> {}", route.pool);
        let count = seen.entry(title.clone()).or_default();
        *count += 1;
        if *count == 1 {
            title
        } else {
            format!("{title} #{count}")
        }
    };
    routes.iter().map(|route| (title(route), route)).collect()
}

impl NameChanges {
    fn of<T>(was: &[T], is: &[T], name: impl Fn(&T) -> String, same: impl Fn(&T, &T) -> bool) -> Self {
        let by_name = |all: &[T]| -> HashMap<String, usize> {
            all.iter().enumerate().map(|(at, one)| (name(one), at)).collect()
        };
        let (were, are) = (by_name(was), by_name(is));
        let mut names = Self::default();
        for one in is {
            let name = name(one);
            match were.get(&name) {
                None => names.added.push(name),
                Some(&at) if !same(&was[at], one) => names.changed.push(name),
                Some(_) => {}
            }
        }
        let gone = was.iter().map(&name).filter(|name| !are.contains_key(name));
        names.removed.extend(gone);
        names
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for ConfigChanges {
    /// Writes one line: `workers: 1 added (w3), 1 removed (w0); settings: 1 changed (server.listen)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings.iter().map(|&key| key.to_owned()).collect();
        let changed = |changed| NameChanges {
            changed,
            ..NameChanges::default()
        };
        let kinds = [
            ("workers", &self.workers),
            ("pools", &self.pools),
            ("policies", &self.policies),
            ("routes", &self.routes),
            ("splits", &changed(self.splits.clone())),
            ("clients", &self.clients),
            ("models", &self.models),
            ("stores", &self.stores),
            ("discovery", &self.discovery),
            ("settings", &changed(settings)),
        ];
        let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
        let kinds: Vec<String> = kinds.map(|(kind, names)| format!("{kind}: {names}")).collect();
        if kinds.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&kinds.join("; "))
    }
}

impl fmt::Display for NameChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
        ];
        let lists = lists.into_iter().filter(|(_, names)| !names.is_empty());
        let lists = lists.map(|(what, names)| {
            let shown = names[..names.len().min(SHOWN)].join(", ");
            let more = match names.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{} {what} ({shown}{more})", names.len())
        });
        f.write_str(&lists.collect::<Vec<_>>().join(", "))
    }
}
