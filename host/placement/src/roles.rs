//! Set of worker roles.

use routing::Role;

/// A set of roles, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleSet(u8);

impl RoleSet {
    /// No role.
    pub const EMPTY: Self = Self(0);
    /// Mixed workers.
    pub const MIXED: Self = Self::of(Role::Mixed);
    /// Prefill workers.
    pub const PREFILL: Self = Self::of(Role::Prefill);
    /// Decode workers.
    pub const DECODE: Self = Self::of(Role::Decode);
    /// Workers that compute prompts. A mixed one takes the whole request.
    pub const PREFILL_OR_MIXED: Self = Self(Self::PREFILL.0 | Self::MIXED.0);
    /// Every role.
    pub const ALL: Self = Self(Self::PREFILL_OR_MIXED.0 | Self::DECODE.0);

    /// Returns the set of one role.
    #[must_use]
    pub const fn of(role: Role) -> Self {
        Self(match role {
            Role::Mixed => 1,
            Role::Prefill => 2,
            Role::Decode => 4,
        })
    }

    /// Returns whether the set has every role of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set with one more role.
    #[must_use]
    pub const fn with(self, role: Role) -> Self {
        Self(self.0 | Self::of(role).0)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the roles that `other` lacks.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
