//! Instances that were changed over HTTP: proposed by one router, applied by the others.

use std::time::{Duration, Instant};

use agreement::{AgreedKey, AgreedKind, SubjectState};
use conductor_config::Config;
use replica_plane::{AgreedView, RouterRow, ViewEntry};
use runtime_overrides::{Ended, NotShared, Overlays, SharedInstance};
use serde_json::json;

use super::AgreedLook;
use crate::reload::Reloader;

/// Time after which the decision on an instance ends that this router does not have, and no ready one. A source may
/// answer wrongly for a while, and the others may be away.
const LOST_AFTER: Duration = Duration::from_mins(10);

/// Instance with a decision that this router does not have.
#[derive(Debug)]
pub(super) struct LostInstance {
    pub(super) since: Instant,
    /// Set if this router had the instance in this run.
    was_here: bool,
}

impl Reloader {
    /// Proposes the state of an instance to the other routers.
    pub(in crate::reload) fn propose_instance(&self, url: &str) {
        let Some(agreed) = &self.agreed else {
            return;
        };
        let active = &self.active;
        if let Some(shared) = active.overlays.share(&active.base.config, url) {
            let key = AgreedKey::of(AgreedKind::Instance, url);
            agreed.handle.propose(key, json!(shared), None);
        }
    }

    /// Proposes the file's states of the instances whose overlays a change of the file has ended: the agreed state
    /// before is older. An instance that this router lost may be there at the others, and return: its state is
    /// proposed later.
    pub(in crate::reload) fn propose_ended(&mut self, ended: &[Ended]) {
        let file = &self.active.base.config;
        let urls = ended.iter().filter_map(|ended| ended.url_with_new_entry(file));
        let (kept, lost): (Vec<&str>, Vec<&str>) = urls.partition(|url| self.has_entry(url));
        for url in kept {
            self.propose_instance(url);
        }
        if let Some(agreed) = &mut self.agreed {
            let lost = lost.into_iter();
            agreed
                .lost
                .extend(lost.map(|url| (url.to_owned(), LostInstance::new(true))));
        }
    }

    /// Proposes the end of the agreed states of instances that no router has any more.
    pub(super) fn propose_lost(&mut self, view: &AgreedView, live: &[RouterRow]) {
        if !view.is_synced {
            return;
        }
        let now_lost = self.lost_instances(view);
        let Some(agreed) = &mut self.agreed else {
            return;
        };
        let mut before = std::mem::take(&mut agreed.lost);
        let with_times = now_lost.into_iter().map(|url| {
            let lost = before.remove(&url).unwrap_or_else(|| LostInstance::new(false));
            (url, lost)
        });
        agreed.lost = with_times.collect();
        let mut over = Vec::new();
        for (url, lost) in &mut agreed.lost {
            let key = AgreedKey::of(AgreedKind::Instance, url);
            // Another router may have it, and be silent, starting or unheard later.
            if !live.iter().all(|other| lacks(view, &key, other)) {
                lost.since = Instant::now();
            }
            if !view.is_proposed(&key) && is_lost_by_all(view, &key, lost, live) {
                over.push(url.clone());
            }
        }
        for url in over {
            self.propose_instance(&url);
        }
    }

    /// Returns the URLs of the instances of decisions that this router does not have, and the deciding router had.
    fn lost_instances(&self, view: &AgreedView) -> Vec<String> {
        let entries = view.followed();
        let instances = entries.filter(|(key, _)| key.kind() == AgreedKind::Instance);
        let urls = instances.filter_map(|(_, known)| {
            let shared = serde_json::from_value::<SharedInstance>(known.entry.value).ok()?;
            let is_lost = shared.file.is_some() && !self.has_entry(&shared.url);
            is_lost.then_some(shared.url)
        });
        let urls: Vec<String> = urls.collect();
        if urls.is_empty() || self.knows_sources() {
            return urls;
        }
        let known = self.agreed.as_ref().map(|agreed| &agreed.lost);
        let is_known = |url: &String| known.is_some_and(|known| known.contains_key(url));
        urls.into_iter().filter(is_known).collect()
    }

    /// Returns whether each source of instances outside the file has answered.
    fn knows_sources(&self) -> bool {
        let reports = self.live.sources.report();
        self.active.file.discovery.iter().all(|source| {
            let report = reports.iter().find(|report| report.source == source.name);
            report.is_some_and(|report| report.last_success.is_some())
        })
    }

    /// Returns overlays with the fleet's decisions on instances of this configuration, for one that becomes active.
    pub(in crate::reload) fn with_decided(&self, overlays: &Overlays, file: &Config) -> Overlays {
        let mut overlays = overlays.clone();
        let view = self.agreed.as_ref().map(|agreed| agreed.handle.view());
        let entries = view.iter().flat_map(|view| view.followed());
        for (_, known) in entries.filter(|(key, _)| key.kind() == AgreedKind::Instance) {
            let shared = serde_json::from_value::<SharedInstance>(known.entry.value);
            if let Ok(Ok(adopted)) = shared.map(|shared| overlays.adopt(file, &shared)) {
                overlays = adopted;
            }
        }
        overlays
    }

    /// Returns whether the file, or a source outside it, has the instance.
    fn has_entry(&self, url: &str) -> bool {
        let pools = self.active.base.config.pools.iter();
        let mut workers = pools.flat_map(|pool| &pool.workers);
        workers.any(|worker| worker.url == url)
    }

    /// Follows the state of an instance.
    pub(super) fn follow_instance(&self, look: &mut AgreedLook, key: &AgreedKey, known: &ViewEntry) {
        let read = serde_json::from_value::<SharedInstance>(known.entry.value.clone());
        let state = match read {
            Ok(shared) => match look.overlays.adopt(&self.active.base.config, &shared) {
                Ok(overlays) => {
                    look.overlays = overlays;
                    SubjectState::Applied
                }
                Err(error @ NotShared::OtherFile) => SubjectState::Elsewhere(error.to_string()),
                Err(error) => SubjectState::Refused(error.to_string()),
            },
            Err(error) => SubjectState::Refused(error.to_string()),
        };
        look.set(key, known, state);
    }
}

impl LostInstance {
    fn new(was_here: bool) -> Self {
        Self {
            since: Instant::now(),
            was_here,
        }
    }
}

/// Returns whether a router looked at the entry of an instance, and does not have the instance.
fn lacks(view: &AgreedView, key: &AgreedKey, other: &RouterRow) -> bool {
    let revision = view.stored(key).map_or(0, |stored| stored.revision);
    let states = view.states.get(&other.router);
    let state = states.and_then(|states| states.get(key));
    state.is_some_and(|(of, state)| *of == revision && matches!(state, SubjectState::Elsewhere(_)))
}

/// Returns whether no router has the lost instance of this entry. One that starts may not have the answers of its
/// sources yet.
fn is_lost_by_all(view: &AgreedView, key: &AgreedKey, lost: &LostInstance, live: &[RouterRow]) -> bool {
    let mut ready = live.iter().filter(|other| other.state == "ready").peekable();
    let is_confirmed = lost.was_here && ready.peek().is_some();
    (is_confirmed || lost.since.elapsed() >= LOST_AFTER) && ready.all(|other| lacks(view, key, other))
}
