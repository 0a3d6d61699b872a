//! Outlier ejection: pool-wide cap of ejected workers. The thresholds are in `state/mod.rs`.

use std::error::Error;

use http::StatusCode;
use observability::error_chain;

use super::AttemptToken;
use crate::base::label::EjectionCause;
use crate::fleet::pool::{Member, WorkerPool};

impl WorkerPool {
    /// Records that the member failed to answer, and why. Returns `true` if its ejection begins.
    pub(crate) fn failed(&self, member: &Member, dispatch: AttemptToken, why: &dyn Error) -> bool {
        let link = &member.link;
        link.health.note(&error_chain(why));
        let cause = link.health.failed(dispatch, link.now_ms(), || self.may_eject());
        ejected(member, cause)
    }

    /// Records that the member answered with a status of 500 or more. Returns `true` if its ejection begins.
    pub(crate) fn server_error(&self, member: &Member, dispatch: AttemptToken, status: StatusCode) -> bool {
        let link = &member.link;
        link.health.note(&format!("it answered a request with {status}"));
        let cause = link
            .health
            .server_error(dispatch, link.now_ms(), || self.may_eject());
        ejected(member, cause)
    }

    /// Returns `true` if one more worker may be ejected for its answers.
    fn may_eject(&self) -> bool {
        let out = self.members.iter().filter(|member| member.link.is_out());
        let most = self.checks.health.most_ejected * self.members.len() as f64;
        (out.count() + 1) as f64 <= most
    }
}

fn ejected(member: &Member, cause: Option<EjectionCause>) -> bool {
    if let Some(cause) = cause {
        member.link.metrics.health.ejected(cause);
    }
    cause.is_some()
}
