//! Eligibility: the workers that may take a request, by role and health.

use routing::{Role, WorkerId};

use crate::part::PlacementPart;
use crate::roles::RoleSet;
use crate::shapes::{AllowedShapes, Eligibility};
use crate::view::{FleetView, PlacementView};

/// The eligible workers of a pool for one request, by role and health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EligibleSet {
    /// Roles of the candidates.
    pub(crate) roles: RoleSet,
    /// Set if the request can be split between two of them.
    pub(crate) splits: bool,
    /// Roles without a healthy worker. Their returning workers are eligible.
    returning: RoleSet,
    /// Roles whose workers out of service are eligible, for want of others.
    out_of_service: RoleSet,
    /// Seed of the request: it selects the requests that returning workers get.
    seed: u64,
    /// Set if every member of the pool is in the set.
    pub(crate) is_everyone: bool,
}

/// The reason why a request has no candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoCandidate {
    /// The pool has no workers. That is a state of the pool and no fault of the request.
    EmptyPool,
    /// No worker serves the model.
    NotServed,
    /// Every worker that serves the model was tried or is draining.
    AllTried,
    /// The workers do one part of a request each, and this request cannot be split.
    CannotSplit,
    /// No worker does the other part.
    MissingRole {
        /// The role of that part.
        missing: Role,
    },
}

impl EligibleSet {
    /// Finds the workers that serve the model, were not tried, do not drain, and are in service.
    ///
    /// Where these cannot serve the request, workers out of service are eligible too, for the roles that lack one in
    /// service. A decode worker does the whole of a request where neither a pair nor a mixed worker is eligible.
    ///
    /// # Errors
    /// [`NoCandidate`] where no allowed shape can be made of the workers.
    pub fn find<V: PlacementView>(
        view: &V,
        part: PlacementPart,
        tried: &[WorkerId],
    ) -> Result<Self, NoCandidate> {
        let allowed = part.allowed(view);
        let identity = view.identity();
        let seed = identity.run.seed(identity.seq);
        let members = view.member_count();
        // By eligibility.
        let mut found = [RoleSet::EMPTY; 3];
        let mut healthy_members = 0;
        for member in (0..members).filter(|member| view.serves(*member)) {
            let worker = view.worker(member);
            if view.is_draining(member) || tried.contains(&worker.id()) {
                continue;
            }
            let eligibility = view.eligibility(member, seed);
            let roles = &mut found[eligibility as usize];
            *roles = roles.with(worker.role());
            healthy_members += usize::from(eligibility == Eligibility::Healthy);
        }
        let [healthy, returning, out] = found;
        let in_service = healthy.union(returning);
        let all = in_service.union(out);
        let returning = in_service.without(healthy);
        let found = |present, out_of_service| {
            let set = Self::of(present, allowed)?;
            Some(Self {
                returning,
                out_of_service,
                seed,
                is_everyone: healthy_members == members && set.roles.has(all),
                ..set
            })
        };
        found(in_service, RoleSet::EMPTY)
            .or_else(|| found(all, all.without(in_service)))
            .ok_or_else(|| NoCandidate::why(view, all, tried, allowed))
    }

    /// Returns the candidates' roles for the workers that are present.
    fn of(present: RoleSet, allowed: AllowedShapes) -> Option<Self> {
        let pair = allowed.pair && present.has(RoleSet::PREFILL) && present.has(RoleSet::DECODE);
        let roles = if pair {
            RoleSet::ALL
        } else if allowed.mixed && present.has(RoleSet::MIXED) {
            RoleSet::MIXED
        } else if allowed.alone && present.has(RoleSet::DECODE) {
            RoleSet::DECODE
        } else {
            return None;
        };
        Some(Self {
            roles,
            splits: pair,
            returning: RoleSet::EMPTY,
            out_of_service: RoleSet::EMPTY,
            seed: 0,
            is_everyone: false,
        })
    }

    /// Returns the same set for one phase of the request.
    pub(crate) fn only(self, roles: RoleSet) -> Self {
        Self {
            roles,
            is_everyone: false,
            ..self
        }
    }

    /// Returns whether a member has one of the candidates' roles.
    pub(crate) fn has_role<V: FleetView>(self, view: &V, member: usize) -> bool {
        self.roles.has(RoleSet::of(view.worker(member).role()))
    }

    /// Returns whether a member is in the set. Whether it serves the model and was tried is checked elsewhere.
    pub(crate) fn has<V: FleetView>(self, view: &V, member: usize) -> bool {
        let role = RoleSet::of(view.worker(member).role());
        let is_eligible = || match view.eligibility(member, self.seed) {
            Eligibility::Healthy => true,
            Eligibility::Returning => self.returning.has(role),
            Eligibility::OutOfService => self.out_of_service.has(role),
        };
        self.roles.has(role) && !view.is_draining(member) && is_eligible()
    }
}

impl NoCandidate {
    /// Returns why no shape is possible with the workers of the roles `all`.
    fn why<V: FleetView>(view: &V, all: RoleSet, tried: &[WorkerId], allowed: AllowedShapes) -> Self {
        let members = view.member_count();
        if members == 0 {
            Self::EmptyPool
        } else if !(0..members).any(|member| view.serves(member)) {
            Self::NotServed
        } else if !tried.is_empty() || all == RoleSet::EMPTY {
            Self::AllTried
        } else if !allowed.pair {
            Self::CannotSplit
        } else {
            let has_prefill = all.has(RoleSet::PREFILL);
            Self::MissingRole {
                missing: if has_prefill { Role::Decode } else { Role::Prefill },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: AllowedShapes = AllowedShapes {
        mixed: true,
        pair: true,
        alone: true,
    };

    /// Checks the candidates' roles, and whether the request is split.
    #[track_caller]
    fn check(present: &[Role], allowed: AllowedShapes, expected: Option<(RoleSet, bool)>) {
        let present = present
            .iter()
            .fold(RoleSet::EMPTY, |roles, role| roles.with(*role));
        let set = EligibleSet::of(present, allowed);
        assert_eq!(set.map(|set| (set.roles, set.splits)), expected);
    }

    #[test]
    fn a_pair_needs_both_roles_and_a_mixed_worker_comes_before_decode_alone() {
        use Role::{Decode, Mixed, Prefill};
        check(&[Prefill, Decode], ANY, Some((RoleSet::ALL, true)));
        check(&[Prefill, Decode, Mixed], ANY, Some((RoleSet::ALL, true)));
        check(&[Decode, Mixed], ANY, Some((RoleSet::MIXED, false)));
        check(&[Prefill, Mixed], ANY, Some((RoleSet::MIXED, false)));
        check(&[Decode], ANY, Some((RoleSet::DECODE, false)));
        check(&[Prefill], ANY, None);
        check(&[], ANY, None);
    }

    #[test]
    fn a_shape_that_is_not_allowed_is_not_used() {
        use Role::{Decode, Mixed, Prefill};
        let whole = AllowedShapes { pair: false, ..ANY };
        check(&[Prefill, Decode, Mixed], whole, Some((RoleSet::MIXED, false)));
        check(&[Prefill, Decode], whole, Some((RoleSet::DECODE, false)));
        let never_alone = AllowedShapes { alone: false, ..ANY };
        check(&[Decode], never_alone, None);
        check(&[Prefill, Decode], never_alone, Some((RoleSet::ALL, true)));
        let leg = AllowedShapes {
            mixed: false,
            pair: false,
            alone: true,
        };
        check(&[Prefill, Decode, Mixed], leg, Some((RoleSet::DECODE, false)));
        check(&[Prefill, Mixed], leg, None);
    }
}
