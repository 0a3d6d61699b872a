//! Rollbacks of policies: proposed when an operator makes one, obeyed when another router's is agreed.

use admin_views::{ChangeCause, ChangeKind};
use agreement::{AgreedKey, AgreedKind, SubjectState};
use policy_store::{HoldState, SharedHold};
use replica_plane::{ObjectState, ViewEntry};
use serde_json::json;
use tracing::warn;

use super::AgreedLook;
use crate::reload::Reloader;

impl Reloader {
    /// Proposes the rollback, or the resumption, of a policy to the other routers.
    pub(in crate::reload) fn propose_hold(&self, policy: &str) {
        let Some(agreed) = &self.agreed else {
            return;
        };
        if let Some((hold, bytes)) = self.library.share_hold(policy) {
            let sha256 = hold.active.as_ref().map(|active| active.sha256().to_owned());
            let objects = sha256.zip(bytes);
            let key = AgreedKey::of(AgreedKind::Hold, policy);
            agreed.handle.propose(key, json!(hold), objects);
        }
    }

    /// Follows a rollback. Returns whether routes are to be built again, and whether files are to be read again.
    pub(super) fn follow_hold(
        &mut self,
        look: &mut AgreedLook,
        key: &AgreedKey,
        known: &ViewEntry,
    ) -> (bool, bool) {
        let hold: SharedHold = match serde_json::from_value(known.entry.value.clone()) {
            Ok(hold) => hold,
            Err(error) => {
                look.set(key, known, SubjectState::Refused(error.to_string()));
                return (false, false);
            }
        };
        let mut state = self.library.obey_hold(&hold, None);
        let mut missing = None;
        if let HoldState::NeedsBytes(sha256) = &state {
            match look.handle.object(sha256) {
                ObjectState::Working => {}
                ObjectState::Ready(bytes) => state = self.library.obey_hold(&hold, Some(&bytes)),
                ObjectState::Failed(why) => missing = Some(why),
            }
        }
        let (mut swapped, mut resumed) = (false, false);
        let shown = match state {
            HoldState::Applied => SubjectState::Applied,
            HoldState::Changed => {
                swapped = true;
                self.note_followed(&hold.policy, &known.entry.by);
                SubjectState::Applied
            }
            HoldState::Resumed => {
                (swapped, resumed) = (true, true);
                let summary = format!(
                    "`{}` is resumed, as router {} decided",
                    hold.policy, known.entry.by
                );
                self.note_policy(ChangeKind::PolicyResumed, ChangeCause::Api, summary);
                SubjectState::Applied
            }
            HoldState::Loading => SubjectState::Working,
            HoldState::NeedsBytes(_) => missing.map_or(SubjectState::Working, SubjectState::Refused),
            HoldState::Unknown => SubjectState::Elsewhere("there is no such policy here".to_owned()),
            HoldState::Refused(problem) => SubjectState::Refused(observability::error_chain(&*problem)),
        };
        look.set(key, known, shown);
        (swapped, resumed)
    }

    fn note_followed(&self, policy: &str, by: &str) {
        warn!(
            policy,
            router = by,
            "the policy goes back to the version before, as another router decided"
        );
        self.metrics.policy_rolled_back(policy, "fleet", 1);
        let summary = format!("`{policy}` went back to the version before, as router {by} decided");
        self.note_policy(ChangeKind::PolicyRolledBack, ChangeCause::Api, summary);
    }
}
