//! Standing of this router towards the fleet's decision on a route: whether a change of the route may begin from this
//! router's policies. Pure.

use agreement::SubjectState;

use super::route_decision::{RouteDecision, RouteVersion};

/// Standing of a router towards a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteStanding {
    /// Standing of a router that follows the decision, or of all if none can: none loses its policies.
    Follows,
    /// Standing of a router that is about to follow the decision.
    Begins,
    /// Reason for which the router does not follow the decision. Its change would be one of other policies.
    Apart(String),
}

impl RouteStanding {
    /// Returns the standing of a router with these policies and this state at the revision of the decision.
    /// `is_abandoned`: all other routers reported that they cannot follow it.
    pub(super) fn of(
        decision: &RouteDecision,
        own: &RouteVersion,
        state: Option<&SubjectState>,
        is_abandoned: bool,
    ) -> Self {
        // The state may be that of the staged policies.
        if *own == decision.active {
            return Self::Follows;
        }
        match state {
            // The file of a policy has changed since.
            Some(SubjectState::Applied) => Self::Follows,
            Some(SubjectState::Working) | None => Self::Begins,
            Some(_) if is_abandoned => Self::Follows,
            Some(
                SubjectState::Elsewhere(why) | SubjectState::Refused(why) | SubjectState::OnlyStaged(why),
            ) => Self::Apart(why.clone()),
            Some(SubjectState::Staged) => {
                Self::Apart("it has other policies until the next switch".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(own: &str, state: Option<SubjectState>, is_abandoned: bool) -> RouteStanding {
        let decision = RouteDecision {
            fingerprint: "f".to_owned(),
            route: 1,
            active: RouteVersion::of_bytes("active"),
            staged: Some(RouteVersion::of_bytes("staged")),
            change: None,
            is_undecided: false,
        };
        RouteStanding::of(
            &decision,
            &RouteVersion::of_bytes(own),
            state.as_ref(),
            is_abandoned,
        )
    }

    fn refused() -> Option<SubjectState> {
        Some(SubjectState::Refused("other bytes".to_owned()))
    }

    #[test]
    fn a_router_with_the_bytes_of_the_decision_follows_it_whatever_it_can_stage() {
        use SubjectState::{Applied, Staged, Working};
        for state in [None, Some(Applied), Some(Staged), Some(Working), refused()] {
            assert_eq!(
                standing("active", state.clone(), false),
                RouteStanding::Follows,
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_router_with_other_bytes_is_apart_while_another_one_follows_or_has_not_reported() {
        let apart = RouteStanding::Apart("other bytes".to_owned());
        assert_eq!(standing("other", refused(), false), apart);
        let only_staged = Some(SubjectState::OnlyStaged("other bytes".to_owned()));
        assert_eq!(standing("other", only_staged, false), apart);
        let staged = standing("other", Some(SubjectState::Staged), false);
        assert!(matches!(staged, RouteStanding::Apart(_)), "{staged:?}");
        assert_eq!(standing("other", None, false), RouteStanding::Begins);
        let working = Some(SubjectState::Working);
        assert_eq!(standing("other", working, false), RouteStanding::Begins);
    }

    #[test]
    fn a_decision_that_no_router_can_follow_binds_none_and_a_followed_one_allows_new_files() {
        assert_eq!(standing("other", refused(), true), RouteStanding::Follows);
        let only_staged = Some(SubjectState::OnlyStaged("other bytes".to_owned()));
        assert_eq!(standing("other", only_staged, true), RouteStanding::Follows);
        let applied = Some(SubjectState::Applied);
        assert_eq!(standing("other", applied, false), RouteStanding::Follows);
    }
}
