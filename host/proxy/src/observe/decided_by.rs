//! Name of the policy that placed a request, for the response header and for comparisons of policies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use routing::{PolicyVersion, PolicyVersions};

/// Name of the fallback, which is part of the router.
const FALLBACK: HeaderValue = HeaderValue::from_static("least-loaded@native");

/// Header values of each version of a policy: `NAME@VERSION`, made once for all requests.
#[derive(Debug)]
pub(crate) struct VersionNames(Box<[(Arc<str>, Option<HeaderValue>)]>);

impl VersionNames {
    pub(crate) fn of(policy: &PolicyVersions) -> Self {
        let name = |version: &PolicyVersion| {
            // Not every name can be a header value.
            let name = HeaderValue::try_from(format!("{}@{}", policy.name(), version.id)).ok();
            (Arc::clone(&version.id), name)
        };
        Self(policy.iter().map(name).collect())
    }

    fn get(&self, version: &PolicyVersion) -> Option<HeaderValue> {
        let mut names = self.0.iter();
        names.find(|(id, _)| *id == version.id)?.1.clone()
    }
}

/// Name of the last policy that placed a part of a request.
#[derive(Debug, Default)]
pub(crate) struct DecidedBy(Mutex<Option<HeaderValue>>);

impl DecidedBy {
    pub(crate) fn policy(&self, names: &VersionNames, version: &PolicyVersion) {
        *self.get() = names.get(version);
    }

    pub(crate) fn fallback(&self) {
        *self.get() = Some(FALLBACK);
    }

    /// Returns the header value. `None` where no header can have that name.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        self.get().clone()
    }

    fn get(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use routing::LeastLoaded;

    use super::*;

    #[test]
    fn the_last_one_that_placed_it_is_named_with_its_version() {
        let version = PolicyVersion {
            policy: Arc::new(LeastLoaded::default()),
            circuit: Arc::default(),
            id: "0123456789ab".into(),
        };
        let names = VersionNames::of(&PolicyVersions::new(version.clone(), []));
        let by = DecidedBy::default();
        let header = || by.header().unwrap();
        by.fallback();
        assert_eq!(header(), "least-loaded@native");
        by.policy(&names, &version);
        assert_eq!(header(), "least-loaded@0123456789ab");
        by.fallback();
        assert_eq!(header(), "least-loaded@native");
    }
}
