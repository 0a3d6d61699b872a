//! Change of a route that the fleet stages, and the decision on its next step: pure functions.
//!
//! The switch and the give-up are bound to the revision by which they were judged. The store accepts one of them, so
//! the answer to a change waits for it.

use std::time::{Duration, Instant};

use admin_pages::control::RefusedRouteChange;
use agreement::{AgreedKey, Judged};
use runtime_overrides::RouteChange;

use super::route_decision::{RouteDecision, RouteVersion};

/// Time in which the store must have a decision, and every router must have staged a change.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Change that the fleet stages.
pub(super) struct RouteStaging {
    pub(super) change: RouteChange,
    pub(super) key: AgreedKey,
    /// Policies that the fleet's decision has before the change.
    pub(super) before: RouteVersion,
    /// Set if the fleet has not decided on the route before.
    pub(super) was_undecided: bool,
    pub(super) decision: RouteDecision,
    pub(super) since: Instant,
    /// Contents of the store that the latest own proposal replaces.
    pub(super) over: Judged,
    /// Reason for which the change is given up, once that is proposed.
    pub(super) given_up: Option<String>,
}

/// Entry of the store as a change sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FoundEntry {
    /// No entry.
    Gone,
    /// Entry that stages the change. `is_own`: this router wrote it.
    Staged { is_own: bool },
    /// Entry that switches to the change.
    Switched,
    /// Entry with the policies from before.
    Before,
    /// Entry with other policies.
    Other,
}

/// Look at the store for a change.
#[derive(Debug, Clone)]
pub(super) struct StagingLook {
    pub(super) is_synced: bool,
    /// Set while the store has not accepted the latest own proposal, nor refused it.
    pub(super) is_proposed: bool,
    /// Reason for which the store refused the bytes of the proposal.
    pub(super) refusal: Option<String>,
    pub(super) has_room: bool,
    pub(super) entry: FoundEntry,
    pub(super) judged: Judged,
    /// Name of the router that wrote the entry.
    pub(super) by: String,
}

/// Progress of a change over the routers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StagingProgress {
    Waiting,
    Ready,
    Refused(String),
}

/// Next step of a change.
#[derive(Debug)]
pub(super) enum StagingStep {
    /// Wait for the store.
    Wait,
    /// Wait for the routers, or go on by their progress.
    Advance,
    /// End of the change, to which the fleet has switched.
    Switched,
    /// Give-up for this reason, over these contents of the store.
    GiveUp(Judged, String),
    /// Refusal, with a give-up over such contents meanwhile.
    Refuse(RefusedRouteChange, Option<Judged>),
}

impl RouteStaging {
    /// Returns whether this router proposed the switch.
    fn is_switch(&self) -> bool {
        self.decision.staged.is_none()
    }

    /// Returns whether the time of its present step is over.
    pub(super) fn is_late(&self) -> bool {
        self.since.elapsed() > DEADLINE
    }

    /// Returns what an entry is for this change.
    pub(super) fn find(&self, stored: Option<&RouteDecision>, is_own: bool) -> FoundEntry {
        let before = (!self.was_undecided).then_some(&self.before);
        match stored {
            Some(found) if found.outcome() == self.decision.outcome() => match found.staged {
                Some(_) => FoundEntry::Staged { is_own },
                None => FoundEntry::Switched,
            },
            Some(found) if found.outcome() == before => FoundEntry::Before,
            _ => FoundEntry::Other,
        }
    }

    /// Returns the next step.
    pub(super) fn next(&self, look: &StagingLook) -> StagingStep {
        if !look.is_synced {
            return self.next_alone(look);
        }
        if look.is_proposed {
            return self.next_proposed(look);
        }
        if !look.has_room {
            let full = "the store of the fleet's decisions has as many as it keeps";
            return self.refuse(full);
        }
        match (&look.entry, &self.given_up) {
            (FoundEntry::Switched, _) => StagingStep::Switched,
            (FoundEntry::Staged { .. }, None) => StagingStep::Advance,
            (FoundEntry::Staged { is_own: true }, Some(why)) => {
                StagingStep::GiveUp(look.judged.clone(), why.clone())
            }
            (FoundEntry::Staged { is_own: false } | FoundEntry::Before, Some(why)) => {
                StagingStep::Refuse(RefusedRouteChange::Fleet(why.clone()), None)
            }
            (FoundEntry::Before, None) => {
                let why = format!("router `{}` decided that the route stays as it is", look.by);
                StagingStep::Refuse(RefusedRouteChange::Fleet(why), None)
            }
            (FoundEntry::Gone, why) => {
                let lost = "the store of the fleet's decisions lost it";
                self.refuse(why.as_deref().unwrap_or(lost))
            }
            (FoundEntry::Other, _) => {
                StagingStep::Refuse(RefusedRouteChange::Overtaken(look.by.clone()), None)
            }
        }
    }

    /// Returns the next step without the store.
    fn next_alone(&self, look: &StagingLook) -> StagingStep {
        if self.is_switch() {
            let lost = "the store of the fleet's decisions is away, and may have the change";
            return match self.is_late() {
                true => StagingStep::Refuse(RefusedRouteChange::Alone(lost.to_owned()), None),
                false => StagingStep::Wait,
            };
        }
        let away = "the store of the fleet's decisions is away; try again, and this router changes alone";
        let over = match look.entry {
            _ if look.is_proposed => Some(self.over.clone()),
            FoundEntry::Staged { is_own: true } => Some(look.judged.clone()),
            _ => None,
        };
        // A give-up that is proposed stays so.
        let over = over.filter(|_| self.given_up.is_none());
        StagingStep::Refuse(RefusedRouteChange::Fleet(away.to_owned()), over)
    }

    /// Returns the next step while the store does not have the own proposal. It may have it without an answer: the
    /// give-up replaces the same revision, so that the store accepts only one of the two.
    fn next_proposed(&self, look: &StagingLook) -> StagingStep {
        if !self.is_late() {
            return StagingStep::Wait;
        }
        match &self.given_up {
            Some(why) => self.refuse(why),
            None => {
                let why = look.refusal.as_deref().unwrap_or("the store does not answer");
                let why =
                    format!("the store of the fleet's decisions did not take it in {DEADLINE:?}: {why}");
                StagingStep::GiveUp(self.over.clone(), why)
            }
        }
    }

    /// Refuses a change whose switch the store may have, or that is not made.
    fn refuse(&self, why: &str) -> StagingStep {
        let why = why.to_owned();
        let refused = match self.is_switch() {
            true => RefusedRouteChange::Alone(format!("{why}; the others may have the change")),
            false => RefusedRouteChange::Fleet(why),
        };
        StagingStep::Refuse(refused, None)
    }

    /// Returns the decision that gives the change up: the policies from before.
    pub(super) fn decision_before(&self) -> RouteDecision {
        RouteDecision {
            active: self.before.clone(),
            staged: None,
            change: None,
            is_undecided: self.was_undecided,
            ..self.decision.clone()
        }
    }

    /// Returns the decision that switches to the change.
    pub(super) fn switch(&self) -> RouteDecision {
        let mut decision = self.decision.clone();
        if let Some(staged) = decision.staged.take() {
            decision.active = staged;
        }
        decision.is_undecided = false;
        decision
    }
}

#[cfg(test)]
mod tests {
    use agreement::AgreedKind;
    use runtime_overrides::RouteAction;

    use super::*;

    fn decision(active: &str, staged: Option<&str>) -> RouteDecision {
        RouteDecision {
            fingerprint: "f".to_owned(),
            route: 1,
            active: RouteVersion::of_bytes(active),
            staged: staged.map(RouteVersion::of_bytes),
            change: Some("promote p".to_owned()),
            is_undecided: false,
        }
    }

    fn staging(decision: RouteDecision) -> RouteStaging {
        RouteStaging {
            change: RouteChange {
                policy: "p".to_owned(),
                action: RouteAction::Promote,
                route: None,
            },
            key: AgreedKey::of(AgreedKind::Route, "f"),
            before: RouteVersion::of_bytes("old"),
            was_undecided: false,
            decision,
            since: Instant::now(),
            over: Judged::of(3, None),
            given_up: None,
        }
    }

    fn late(staging: RouteStaging) -> RouteStaging {
        let since = Instant::now().checked_sub(2 * DEADLINE).unwrap();
        RouteStaging { since, ..staging }
    }

    fn given_up(staging: RouteStaging) -> RouteStaging {
        let given_up = Some("no room".to_owned());
        RouteStaging { given_up, ..staging }
    }

    fn look(entry: FoundEntry) -> StagingLook {
        StagingLook {
            is_synced: true,
            is_proposed: false,
            refusal: None,
            has_room: true,
            entry,
            judged: Judged::of(5, None),
            by: "two".to_owned(),
        }
    }

    const PROPOSED: fn(FoundEntry) -> StagingLook = |entry| StagingLook {
        is_proposed: true,
        ..look(entry)
    };
    const AWAY: fn(FoundEntry) -> StagingLook = |entry| StagingLook {
        is_synced: false,
        ..look(entry)
    };
    const OWN: FoundEntry = FoundEntry::Staged { is_own: true };
    const OTHERS: FoundEntry = FoundEntry::Staged { is_own: false };

    /// Returns a step in short.
    fn text(step: &StagingStep) -> String {
        match step {
            StagingStep::Wait => "wait".to_owned(),
            StagingStep::Advance => "advance".to_owned(),
            StagingStep::Switched => "switched".to_owned(),
            StagingStep::GiveUp(over, _) => format!("give up {}", over.revision()),
            StagingStep::Refuse(refused, over) => {
                let refused = match refused {
                    RefusedRouteChange::Fleet(_) => "not made",
                    RefusedRouteChange::Alone(_) => "perhaps made",
                    RefusedRouteChange::Overtaken(_) => "overtaken",
                    _ => "refused",
                };
                let over = over.as_ref().map(|over| format!(", give up {}", over.revision()));
                refused.to_owned() + &over.unwrap_or_default()
            }
        }
    }

    #[test]
    fn an_entry_is_the_change_the_policies_before_or_another_decision() {
        let staging = staging(decision("old", Some("new")));
        for (stored, found) in [
            (decision("old", Some("new")), OWN),
            (decision("older", Some("new")), OWN),
            (decision("new", None), FoundEntry::Switched),
            (decision("old", None), FoundEntry::Before),
            (decision("old", Some("other")), FoundEntry::Other),
            (decision("other", None), FoundEntry::Other),
        ] {
            assert_eq!(staging.find(Some(&stored), true), found, "{stored:?}");
        }
        assert_eq!(staging.find(None, true), FoundEntry::Other, "it cannot be read");
    }

    #[test]
    fn a_staged_change_goes_on_by_the_entry_that_the_store_has() {
        let stage = || staging(decision("old", Some("new")));
        let cases = [
            (stage(), PROPOSED(FoundEntry::Gone), "wait"),
            (stage(), look(OWN), "advance"),
            (late(stage()), look(OTHERS), "advance"),
            (stage(), look(FoundEntry::Switched), "switched"),
            (stage(), look(FoundEntry::Before), "not made"),
            (stage(), look(FoundEntry::Gone), "not made"),
            (stage(), look(FoundEntry::Other), "overtaken"),
            (late(stage()), PROPOSED(FoundEntry::Gone), "give up 3"),
            (stage(), AWAY(OWN), "not made, give up 5"),
            (stage(), PROPOSED(FoundEntry::Gone), "wait"),
            (stage(), AWAY(OTHERS), "not made"),
        ];
        for (staging, look, expected) in cases {
            assert_eq!(text(&staging.next(&look)), expected, "{look:?}");
        }
    }

    #[test]
    fn a_switch_without_an_answer_is_given_up_over_the_revision_that_it_replaces() {
        let switch = || staging(decision("new", None));
        let cases = [
            (switch(), PROPOSED(OWN), "wait"),
            (late(switch()), PROPOSED(OWN), "give up 3"),
            (switch(), AWAY(OWN), "wait"),
            (late(switch()), AWAY(OWN), "perhaps made"),
            (switch(), look(FoundEntry::Gone), "perhaps made"),
            (switch(), look(FoundEntry::Before), "not made"),
            (given_up(switch()), PROPOSED(OWN), "wait"),
            (late(given_up(switch())), PROPOSED(OWN), "perhaps made"),
            (given_up(switch()), look(FoundEntry::Switched), "switched"),
            (given_up(switch()), look(FoundEntry::Before), "not made"),
        ];
        for (staging, look, expected) in cases {
            assert_eq!(text(&staging.next(&look)), expected, "{look:?}");
        }
    }

    #[test]
    fn a_change_that_is_given_up_is_answered_once_the_store_has_no_own_entry_that_stages_it() {
        let stage = || given_up(staging(decision("old", Some("new"))));
        let cases = [
            (stage(), PROPOSED(FoundEntry::Gone), "wait"),
            (late(stage()), PROPOSED(FoundEntry::Gone), "not made"),
            (stage(), look(FoundEntry::Before), "not made"),
            (stage(), look(FoundEntry::Gone), "not made"),
            (stage(), look(OWN), "give up 5"),
            (stage(), look(OTHERS), "not made"),
            (stage(), look(FoundEntry::Switched), "switched"),
            (stage(), look(FoundEntry::Other), "overtaken"),
        ];
        for (staging, look, expected) in cases {
            assert_eq!(text(&staging.next(&look)), expected, "{look:?}");
        }
        let before = stage().decision_before();
        assert_eq!(
            (&before.active, &before.staged),
            (&RouteVersion::of_bytes("old"), &None)
        );
        assert_eq!(stage().switch().active, RouteVersion::of_bytes("new"));
    }

    #[test]
    fn the_first_change_of_a_route_decides_on_it_by_the_switch_and_a_give_up_leaves_it_undecided() {
        let undecided = |active| RouteDecision {
            is_undecided: true,
            ..decision(active, None)
        };
        let first = RouteDecision {
            staged: Some(RouteVersion::of_bytes("new")),
            ..undecided("own")
        };
        let stage = RouteStaging {
            was_undecided: true,
            ..staging(first)
        };
        for (stored, found) in [
            (decision("new", None), FoundEntry::Switched),
            (decision("own", None), FoundEntry::Other),
            (undecided("own"), FoundEntry::Before),
            (undecided("other"), FoundEntry::Before),
            // Its author had the policies before.
            (undecided("new"), FoundEntry::Before),
        ] {
            assert_eq!(stage.find(Some(&stored), false), found, "{stored:?}");
        }
        let switch = stage.switch();
        assert!(!switch.is_undecided);
        assert!(stage.decision_before().is_undecided);
        let switching = RouteStaging {
            decision: switch,
            ..stage
        };
        assert!(switching.decision_before().is_undecided);
    }
}
