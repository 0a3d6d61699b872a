//! Which policy placed a request, for the header of its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use routing::PolicyVersions;

/// The fallback, which is part of the router.
const FALLBACK: HeaderValue = HeaderValue::from_static("least-loaded@native");

/// The last that placed a part of a request: the policy and the id of its version. None: the fallback.
#[derive(Debug, Default)]
pub(crate) struct DecidedBy(Mutex<Option<(Arc<PolicyVersions>, Arc<str>)>>);

impl DecidedBy {
    pub(crate) fn policy(&self, policy: &Arc<PolicyVersions>, version: &Arc<str>) {
        *self.get() = Some((Arc::clone(policy), Arc::clone(version)));
    }

    pub(crate) fn fallback(&self) {
        *self.get() = None;
    }

    /// `NAME@VERSION`; none where no header can have that name.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        match &*self.get() {
            Some((policy, version)) => HeaderValue::try_from(format!("{}@{version}", policy.name())).ok(),
            None => Some(FALLBACK),
        }
    }

    fn get(&self) -> MutexGuard<'_, Option<(Arc<PolicyVersions>, Arc<str>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use routing::LeastLoaded;

    use super::*;

    #[test]
    fn the_last_one_that_placed_it_is_named_with_its_version() {
        let by = DecidedBy::default();
        let header = || by.header().unwrap();
        assert_eq!(header(), "least-loaded@native");
        by.policy(
            &PolicyVersions::only(Arc::new(LeastLoaded::default())),
            &"0123456789ab".into(),
        );
        assert_eq!(header(), "least-loaded@0123456789ab");
        by.fallback();
        assert_eq!(header(), "least-loaded@native");
    }
}
