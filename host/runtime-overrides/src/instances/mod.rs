//! Changes by the API to the configuration's workers. They are kept beside the file's configuration, laid over it, and
//! dropped where the file changes the entry. Pure: values in, values out.
//!
//! An overlay has the file's entry of the instance at the time of the change. As long as the entry is the same, the
//! overlay stands. Once the entry changes, comes or goes, the file takes precedence.

mod change;
mod report;
mod shared;

use std::collections::HashSet;

use conductor_config::{Config, DataParallel, PoolConfig, WorkerConfig, rank_name};
use routing::Role;

pub use self::change::{Addition, ChangeError, Changed, Done, DrainChange, InstanceChange, Removal};
pub use self::report::{EndedReport, OverlayKind, OverlayReport};
pub use self::shared::{NotShared, SharedInstance};
use crate::routes::{RouteChange, RouteChangeError, RouteOverrides};

/// Most instances that are other than the file has them.
pub(crate) const MOST_OVERLAYS: usize = 1_024;

/// Instance that differs from the file. At least one side is present.
#[derive(Debug, Clone, PartialEq)]
struct Overlay {
    pool: String,
    /// The file's entry; none: the file has none.
    file: Option<WorkerConfig>,
    /// Active worker instead; `None` if it is removed.
    now: Option<WorkerConfig>,
}

/// All of them, in the order in which they were made; each has a URL of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overlays {
    all: Vec<Overlay>,
    /// Routes whose policies are other than the file has them.
    routes: RouteOverrides,
    /// Policies of those that the newest file has ended.
    ended_routes: Vec<String>,
}

/// An overlay that a new file has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    overlay: Overlay,
    /// Ends the sentence "it is the file's again: ".
    pub why: &'static str,
}

impl Overlay {
    fn worker(&self) -> &WorkerConfig {
        let worker = self.now.as_ref().or(self.file.as_ref());
        worker.expect("an overlay is of an instance that the file or the API names")
    }

    fn is_of(&self, url: &str) -> bool {
        self.worker().url == url
    }

    /// Returns whether the file's entry is that of which the overlay was made.
    fn has_same_entry(&self, file: &Config) -> bool {
        let was = self.file.as_ref().map(|worker| (&*self.pool, worker));
        let is = entry(file, &self.worker().url).map(|(pool, worker)| (&*pool.name, worker));
        was == is
    }

    /// Returns the conflict with this file, if any.
    fn objection(&self, file: &Config) -> Option<&'static str> {
        let is_same = self.has_same_entry(file);
        if self.file.is_none() && !is_same {
            return Some("the file names it itself");
        }
        let Some(pool) = file.pools.iter().find(|pool| pool.name == self.pool) else {
            return Some("its pool is gone");
        };
        if !is_same {
            return Some("its entry in the file has changed");
        }
        let now = self.now.as_ref()?;
        if now.role != Role::Mixed && pool.pd.is_none() {
            return Some("its pool splits no requests any more");
        }
        let added = self.file.is_none();
        (added && takes_a_name(now, entries(file))).then_some("the file gives its name to another worker")
    }
}

impl Overlays {
    /// Returns the file's configuration with the overlays applied.
    pub fn over(&self, file: &Config) -> Config {
        let mut config = file.clone();
        for overlay in &self.all {
            let Some(pool) = config.pools.iter_mut().find(|pool| pool.name == overlay.pool) else {
                continue;
            };
            let mut workers = pool.workers.iter();
            let place = workers.position(|worker| overlay.is_of(&worker.url));
            match (place, overlay.now.clone()) {
                (Some(place), Some(now)) => pool.workers[place] = now,
                (Some(place), None) => drop(pool.workers.remove(place)),
                (None, now) => pool.workers.extend(now),
            }
        }
        self.routes.over(&mut config);
        config
    }

    /// Returns the routes whose policies are other than the file has them.
    pub fn routes(&self) -> &RouteOverrides {
        &self.routes
    }

    /// Returns the policies of those that the newest file has ended.
    pub fn ended_routes(&self) -> &[String] {
        &self.ended_routes
    }

    /// Returns them with these routes.
    pub fn with_routes(&self, routes: RouteOverrides) -> Self {
        Self {
            all: self.all.clone(),
            routes,
            ended_routes: Vec::new(),
        }
    }

    /// Returns them as the change of a route has them, and the number of the route.
    ///
    /// # Errors
    /// Reason of the refusal.
    pub fn change_routes(
        &self,
        file: &Config,
        in_folder: &[String],
        change: &RouteChange,
    ) -> Result<(Self, usize), RouteChangeError> {
        let (routes, route) = self.routes.change(file, in_folder, change)?;
        Ok((self.with_routes(routes), route))
    }

    /// Splits the overlays by a new file: those that stay, and those that it ends.
    pub fn under(&self, file: &Config) -> (Self, Vec<Ended>) {
        let (routes, ended_routes) = self.routes.under(file);
        let mut ended = Vec::new();
        let mut left = Self {
            all: Vec::new(),
            routes,
            ended_routes,
        };
        for overlay in &self.all {
            match overlay.objection(file) {
                None => left.all.push(overlay.clone()),
                Some(why) => ended.push(Ended {
                    overlay: overlay.clone(),
                    why,
                }),
            }
        }
        (left, ended)
    }

    fn of(&self, url: &str) -> Option<&Overlay> {
        self.all.iter().find(|overlay| overlay.is_of(url))
    }

    /// Returns the overlays with this one, in place of the instance's last one.
    fn with(&self, overlay: Overlay) -> Result<Self, ChangeError> {
        let mut all = self.all.clone();
        let place = all.iter().position(|before| before.is_of(&overlay.worker().url));
        match place {
            Some(place) if overlay.file == overlay.now => drop(all.remove(place)),
            Some(place) => all[place] = overlay,
            None if overlay.file == overlay.now => {}
            None => all.push(overlay),
        }
        if all.len() > MOST_OVERLAYS {
            return Err(ChangeError::TooMany { limit: MOST_OVERLAYS });
        }
        Ok(Self { all, ..self.clone() })
    }
}

/// Returns the file's entry of an instance.
fn entry<'c>(file: &'c Config, url: &str) -> Option<(&'c PoolConfig, &'c WorkerConfig)> {
    let mut entries = file
        .pools
        .iter()
        .flat_map(|pool| pool.workers.iter().map(move |worker| (pool, worker)));
    entries.find(|(_, worker)| worker.url == url)
}

/// Returns every worker of the file.
fn entries(file: &Config) -> impl Iterator<Item = &WorkerConfig> {
    file.pools.iter().flat_map(|pool| &pool.workers)
}

/// Returns true if another worker has one of its names.
fn takes_a_name<'c>(worker: &WorkerConfig, others: impl Iterator<Item = &'c WorkerConfig>) -> bool {
    let own: HashSet<String> = names(worker).collect();
    let mut others = others.filter(|other| other.url != worker.url);
    others.any(|other| names(other).any(|name| own.contains(&name)))
}

/// Returns a worker's name, and those of its ranks.
fn names(worker: &WorkerConfig) -> impl Iterator<Item = String> {
    let ranks = worker.data_parallel.iter().flat_map(DataParallel::ranks);
    std::iter::once(worker.name.clone()).chain(ranks.map(|rank| rank_name(&worker.name, rank)))
}

#[cfg(test)]
mod tests;
