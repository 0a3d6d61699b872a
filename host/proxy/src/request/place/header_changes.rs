//! Changes of a request's headers on its way to a worker.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Header changes: first the removals, then the additions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Names to be removed with all their values.
    pub remove: Vec<HeaderName>,
    /// Headers to be added, in this order.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderChanges {
    /// Returns the changes that make `after` of `before`. A name whose values differ is removed and added again.
    #[must_use]
    pub fn between(before: &HeaderMap, after: &HeaderMap) -> Self {
        let mut changes = Self::default();
        let is_same = |name: &HeaderName| before.get_all(name).iter().eq(after.get_all(name).iter());
        for name in before.keys().filter(|name| !is_same(name)) {
            changes.remove.push(name.clone());
        }
        for name in after.keys().filter(|name| !is_same(name)) {
            let values = after.get_all(name).iter();
            changes
                .add
                .extend(values.map(|value| (name.clone(), value.clone())));
        }
        changes
    }

    /// Replaces all values of a header by this one, or removes them.
    pub(crate) fn set(&mut self, name: HeaderName, value: Option<HeaderValue>) {
        self.add.retain(|(added, _)| *added != name);
        self.add.extend(value.map(|value| (name.clone(), value)));
        self.remove.push(name);
    }

    /// Applies the changes.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let parsed = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut map = HeaderMap::new();
        for (name, value) in parsed {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn applied_changes_make_the_later_headers_of_the_earlier() {
        let before = map(&[("host", "a"), ("x", "1"), ("x", "2"), ("same", "s")]);
        let after = map(&[("x", "1"), ("x", "3"), ("same", "s"), ("new", "n")]);
        let changes = HeaderChanges::between(&before, &after);
        assert!(!changes.remove.iter().any(|name| name == "same"));
        let mut applied = before.clone();
        changes.apply(&mut applied);
        assert_eq!(applied, after);
        assert_eq!(HeaderChanges::between(&after, &after), HeaderChanges::default());
    }

    #[test]
    fn a_header_that_is_set_has_no_other_value() {
        let before = map(&[("x", "1"), ("y", "1")]);
        let mut changes = HeaderChanges::between(&before, &map(&[("x", "2"), ("y", "1")]));
        changes.set(HeaderName::from_static("x"), Some(HeaderValue::from_static("3")));
        changes.set(HeaderName::from_static("y"), None);
        let mut applied = before;
        changes.apply(&mut applied);
        assert_eq!(applied, map(&[("x", "3")]));
    }
}
