//! Instances that were changed over HTTP: proposed by one router, applied by the others.

use agreement::{AgreedKey, AgreedKind, SubjectState};
use replica_plane::{AgreedView, RouterRow, ViewEntry};
use runtime_overrides::{Ended, NotShared, SharedInstance};
use serde_json::json;

use super::AgreedLook;
use crate::reload::Reloader;

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

    /// Proposes the file's states of the instances whose overlays a change of the file has ended: the agreed state before
    /// is older. An instance that this router lost may be there at the others, and return: its state is proposed later.
    pub(in crate::reload) fn propose_ended(&mut self, ended: &[Ended]) {
        let file = &self.active.base.config;
        let urls = ended.iter().filter_map(|ended| ended.url_with_new_entry(file));
        let (kept, lost): (Vec<&str>, Vec<&str>) = urls.partition(|url| self.has_entry(url));
        for url in kept {
            self.propose_instance(url);
        }
        if let Some(agreed) = &mut self.agreed {
            agreed.lost.extend(lost.into_iter().map(str::to_owned));
        }
    }

    /// Proposes the end of the agreed states of instances that no router has any more.
    pub(super) fn propose_lost(&mut self, view: &AgreedView, live: &[RouterRow]) {
        let Some(agreed) = &mut self.agreed else {
            return;
        };
        let lost = std::mem::take(&mut agreed.lost);
        for url in lost {
            let key = AgreedKey::of(AgreedKind::Instance, &url);
            let is_decided = view.is_synced && view.followed_one(&key).is_none();
            if is_decided || self.has_entry(&url) {
                continue;
            }
            if view.is_synced && is_lost_by_all(view, &key, live) {
                self.propose_instance(&url);
            } else if let Some(agreed) = &mut self.agreed {
                agreed.lost.insert(url);
            }
        }
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

/// Returns whether no live router has the instance of this entry: each has looked at the entry, and follows it not.
fn is_lost_by_all(view: &AgreedView, key: &AgreedKey, live: &[RouterRow]) -> bool {
    let revision = view.stored(key).map_or(0, |stored| stored.revision);
    live.iter().all(|other| {
        let states = view.states.get(&other.router);
        let state = states.and_then(|states| states.get(key));
        state.is_some_and(|(of, state)| *of == revision && matches!(state, SubjectState::Elsewhere(_)))
    })
}
