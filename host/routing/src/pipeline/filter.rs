//! Filters of a pipeline: each tests one column.

use super::spec::{Filter, FilterTest};
use crate::decision::Rejection;
use crate::feature::{CandidateFeature, UnknownFeature};
use crate::worker::label_value;

/// A client may come back when a number has changed; labels stay.
const RETRY_AFTER_MS: u32 = 1_000;

/// A filter and where its number is.
#[derive(Debug)]
pub(super) struct ColumnFilter {
    pub(super) column: usize,
    keeps: ColumnTest,
    /// Rejection of a request for which it leaves no candidate. `None` if the filter is then ignored.
    pub(super) rejection: Option<Rejection>,
}

#[derive(Debug)]
enum ColumnTest {
    With(Box<[f64]>),
    Without(Box<[f64]>),
    Between(f64, f64),
}

impl ColumnFilter {
    pub(super) fn new(filter: &Filter, column: usize) -> Self {
        let keeps = match &filter.test {
            FilterTest::Label { without, values, .. } => {
                let values = values.iter().map(|text| label_value(text)).collect();
                if *without {
                    ColumnTest::Without(values)
                } else {
                    ColumnTest::With(values)
                }
            }
            FilterTest::Feature {
                at_least, at_most, ..
            } => ColumnTest::Between(*at_least, *at_most),
        };
        let retry_after_ms = match keeps {
            ColumnTest::Between(..) => RETRY_AFTER_MS,
            ColumnTest::With(_) | ColumnTest::Without(_) => 0,
        };
        let rejection = || Rejection {
            status: 503,
            retry_after_ms,
            reason: format!("no worker for this request: none with {filter}"),
        };
        Self {
            column,
            keeps,
            rejection: filter.strict.then(rejection),
        }
    }

    /// Returns whether a candidate with this number is kept.
    pub(super) fn keeps(&self, number: f64) -> bool {
        match &self.keeps {
            ColumnTest::With(values) => values.contains(&number),
            ColumnTest::Without(values) => !values.contains(&number),
            ColumnTest::Between(least, most) => number.is_nan() || (*least..=*most).contains(&number),
        }
    }
}

/// Returns the column that a filter looks at.
pub(super) fn feature(test: &FilterTest) -> Result<CandidateFeature, UnknownFeature> {
    match test {
        FilterTest::Label { key, .. } => Ok(CandidateFeature::Label(key.clone())),
        FilterTest::Feature { name, .. } => CandidateFeature::resolve(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(test: FilterTest, number: f64, expected: bool) {
        let filter = Filter { test, strict: false };
        assert_eq!(
            ColumnFilter::new(&filter, 0).keeps(number),
            expected,
            "{filter}: {number}"
        );
    }

    fn label(without: bool, values: &[&str]) -> FilterTest {
        FilterTest::Label {
            key: "zone".into(),
            without,
            values: values.iter().map(|&text| text.into()).collect(),
        }
    }

    fn between(at_least: f64, at_most: f64) -> FilterTest {
        FilterTest::Feature {
            name: "load.requests".into(),
            at_least,
            at_most,
        }
    }

    #[test]
    fn a_label_is_one_of_the_values_or_none_of_them() {
        check(label(false, &["eu", "us"]), label_value("us"), true);
        check(label(false, &["eu", "us"]), label_value("asia"), false);
        check(label(true, &["eu", "us"]), label_value("us"), false);
        check(label(true, &["eu", "us"]), label_value("asia"), true);
        check(label(false, &["2"]), 2.0, true);
    }

    #[test]
    fn a_worker_without_the_label_has_none_of_its_values() {
        check(label(false, &["eu"]), f64::NAN, false);
        check(label(true, &["eu"]), f64::NAN, true);
    }

    #[test]
    fn a_bound_is_within_and_what_is_not_known_is_within_any() {
        check(between(1.0, 8.0), 8.0, true);
        check(between(1.0, 8.0), 1.0, true);
        check(between(1.0, 8.0), 8.5, false);
        check(between(1.0, 8.0), 0.5, false);
        check(between(f64::NEG_INFINITY, 8.0), -3.0, true);
        check(between(1.0, 8.0), f64::NAN, true);
    }

    #[test]
    fn a_strict_filter_reports_what_no_candidate_has() {
        let filter = |test| Filter { test, strict: true };
        let rejection = |test| ColumnFilter::new(&filter(test), 0).rejection.unwrap();
        let of_label = rejection(label(false, &["eu"]));
        assert_eq!(
            of_label.reason,
            "no worker for this request: none with label zone is eu"
        );
        assert_eq!((of_label.status, of_label.retry_after_ms), (503, 0));
        let of_number = rejection(between(f64::NEG_INFINITY, 8.0));
        assert_eq!(
            of_number.reason,
            "no worker for this request: none with load.requests at most 8"
        );
        assert_eq!((of_number.status, of_number.retry_after_ms), (503, 1_000));
    }
}
