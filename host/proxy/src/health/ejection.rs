//! What requests tell of a worker's health, seen from its pool: who may rest depends on how many others do.

use super::Dispatch;
use crate::snapshot::{Member, PoolState};

impl PoolState {
    /// The member failed to answer. Whether it begins to rest.
    pub(crate) fn failed(&self, member: &Member, dispatch: Dispatch) -> bool {
        let link = &member.link;
        let cause = link.health.failed(dispatch, link.now_ms(), || self.may_eject());
        if let Some(cause) = cause {
            link.metrics.health.ejected(cause);
        }
        cause.is_some()
    }

    /// The member answered with a status of 500 or more. Whether it begins to rest.
    pub(crate) fn server_error(&self, member: &Member, dispatch: Dispatch) -> bool {
        let link = &member.link;
        let cause = link
            .health
            .server_error(dispatch, link.now_ms(), || self.may_eject());
        if let Some(cause) = cause {
            link.metrics.health.ejected(cause);
        }
        cause.is_some()
    }

    /// Whether one more worker may rest for what it answered.
    fn may_eject(&self) -> bool {
        let out = self.members.iter().filter(|member| member.link.is_resting());
        let most = self.health.most_ejected * self.members.len() as f64;
        (out.count() + 1) as f64 <= most
    }
}
