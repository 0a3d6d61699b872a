//! Instances that were changed over HTTP: proposed by one router, applied by the others.

use agreement::{AgreedKey, AgreedKind, SubjectState};
use replica_plane::ViewEntry;
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
    /// is older.
    pub(in crate::reload) fn propose_ended(&self, ended: &[Ended]) {
        let file = &self.active.base.config;
        for url in ended.iter().filter_map(|ended| ended.url_with_new_entry(file)) {
            self.propose_instance(url);
        }
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
