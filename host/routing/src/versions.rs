//! Versions of a policy: the active one, and the earlier good ones that decide while its circuit is open.

use std::sync::Arc;

use crate::circuit::{Admission, Circuit, CircuitChange};
use crate::policy::Policy;

/// One version of a policy.
#[derive(Debug, Clone)]
pub struct PolicyVersion {
    /// The policy itself.
    pub policy: Arc<dyn Policy>,
    /// Circuit; the same one in every chain that the version is in.
    pub circuit: Arc<Circuit>,
    /// Identity: the beginning of its bytes' SHA-256, or `native`.
    pub id: Arc<str>,
}

/// Id of every native policy.
const NATIVE: &str = "native";

impl PolicyVersion {
    /// Returns whether both decide alike: same bytes and parameters, or the same native policy.
    ///
    /// The same id may be another object: a pipeline is put together again for each configuration.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let has_same_id = self.policy.name() == other.policy.name() && self.id == other.id;
        Arc::ptr_eq(&self.policy, &other.policy) || (has_same_id && *self.id != *NATIVE)
    }
}

/// The versions of one policy, at least one, the active one first.
#[derive(Debug)]
pub struct PolicyVersions {
    active: PolicyVersion,
    before: Box<[PolicyVersion]>,
}

/// The version that decides one call.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    version: &'a PolicyVersion,
    admission: Admission,
}

impl<'a> Chosen<'a> {
    /// Returns the version.
    #[must_use]
    pub fn version(self) -> &'a PolicyVersion {
        self.version
    }

    /// Records a valid answer.
    pub fn succeeded(self, now_us: u64) -> CircuitChange {
        self.version.circuit.succeeded(self.admission, now_us)
    }

    /// Records a failure, or an invalid answer.
    pub fn failed(self, now_us: u64) -> CircuitChange {
        self.version.circuit.failed(self.admission, now_us)
    }
}

impl PolicyVersions {
    /// Returns a chain; `before` are good versions that were active, the latest first.
    #[must_use]
    pub fn new(active: PolicyVersion, before: impl IntoIterator<Item = PolicyVersion>) -> Self {
        Self {
            active,
            before: before.into_iter().collect(),
        }
    }

    /// Returns a policy that has one version.
    #[must_use]
    pub fn only(policy: Arc<dyn Policy>) -> Arc<Self> {
        let version = PolicyVersion {
            policy,
            circuit: Arc::default(),
            id: NATIVE.into(),
        };
        Arc::new(Self::new(version, []))
    }

    /// Returns its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        self.active.policy.name()
    }

    /// Returns the active version.
    #[must_use]
    pub fn active(&self) -> &PolicyVersion {
        &self.active
    }

    /// Returns every version, the active one first.
    pub fn iter(&self) -> impl Iterator<Item = &PolicyVersion> {
        std::iter::once(&self.active).chain(&self.before)
    }

    /// Chooses the version of a call that is made now: the first whose circuit admits it.
    #[must_use]
    pub fn choose(&self, now_us: u64) -> Option<Chosen<'_>> {
        self.iter().find_map(|version| {
            let admission = version.circuit.admit(now_us)?;
            Some(Chosen { version, admission })
        })
    }

    /// Returns whether a version that may decide now needs the prompt's tokens.
    #[must_use]
    pub fn needs_tokens(&self) -> bool {
        self.may_decide(|policy| policy.needs_tokens())
    }

    /// Returns whether a version that may decide now needs a lookup in the prefix index.
    #[must_use]
    pub fn needs_prefix(&self) -> bool {
        self.may_decide(|policy| policy.needs_prefix())
    }

    /// Returns whether a version that may decide now meets the condition: the first whose circuit is closed, or one
    /// that is probed before it.
    fn may_decide(&self, does: impl Fn(&dyn Policy) -> bool) -> bool {
        for version in self.iter() {
            if does(&*version.policy) {
                return true;
            }
            if version.circuit.is_closed() {
                break;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;
    use crate::fallback::LeastLoaded;
    use crate::fault::PolicyFault;
    use crate::feature::FeaturePlan;
    use crate::policy::DecisionInput;
    use crate::policy::PolicyDescription;

    fn version(id: &str) -> PolicyVersion {
        PolicyVersion {
            policy: Arc::new(LeastLoaded::default()),
            circuit: Arc::default(),
            id: id.into(),
        }
    }

    fn open(version: &PolicyVersion) {
        for _ in 0..5 {
            version.circuit.failed(Admission::Regular, 0);
        }
    }

    #[test]
    fn a_version_is_known_by_its_id_and_a_native_policy_by_itself() {
        assert!(version("1").is_same(&version("1")), "put together again");
        assert!(!version("1").is_same(&version("2")));
        let native = version("native");
        assert!(native.is_same(&native.clone()));
        assert!(!native.is_same(&version("native")));
    }

    #[test]
    fn tokens_are_needed_by_versions_that_may_decide() {
        let wants = PolicyVersion {
            policy: Arc::new(Wants(
                FeaturePlan::resolve(&["request.prompt-tokens"], &[]).unwrap(),
            )),
            ..version("1")
        };
        let newest = version("2");
        let chain = PolicyVersions::new(newest.clone(), [wants]);
        assert!(!chain.needs_tokens());
        open(&newest);
        assert!(chain.needs_tokens());
    }

    #[derive(Debug)]
    struct Wants(FeaturePlan);

    impl PolicyDescription for Wants {
        fn name(&self) -> &'static str {
            "wants"
        }

        fn plan(&self) -> &FeaturePlan {
            &self.0
        }
    }

    impl Policy for Wants {
        fn decide(&self, _: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
            Ok(Verdict::Pass)
        }
    }

    #[test]
    fn the_last_good_version_decides_while_the_newest_rests_and_none_where_both_do() {
        let (newest, before) = (version("2"), version("1"));
        let chain = PolicyVersions::new(newest.clone(), [before.clone()]);
        let chosen = |now| chain.choose(now).map(|chosen| &*chosen.version().id);
        assert_eq!(chosen(0), Some("2"));
        open(&newest);
        assert_eq!(chosen(1), Some("1"));
        open(&before);
        assert_eq!(chosen(2), None);
        assert_eq!(chosen(2_000_000), Some("2"), "a probe");
    }
}
