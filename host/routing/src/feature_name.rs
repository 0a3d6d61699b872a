//! The way back from a feature to its name, for records: names outlive the numbers that features have in one build.

use std::borrow::Cow;

use crate::feature::{CANDIDATE_CATALOGUE, CandidateFeature, FeaturePlan, REQUEST_CATALOGUE, RequestFeature};

/// Name of a feature that this host does not know.
const UNKNOWN: &str = "?";

impl RequestFeature {
    /// Returns its name; `?`, which resolves to it, where this host does not know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut known = REQUEST_CATALOGUE.iter();
        known
            .find(|(feature, _)| *feature == self)
            .map_or(UNKNOWN, |(_, doc)| doc.name)
    }
}

impl CandidateFeature {
    /// Returns its name, which resolves to it; `?` where this host does not know it.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        if let Self::Label(key) = self {
            // A name's last `?` is not of the key.
            let optional = if key.ends_with('?') { UNKNOWN } else { "" };
            return format!("label.{key}{optional}").into();
        }
        let mut known = CANDIDATE_CATALOGUE.iter();
        known
            .find(|(feature, _)| feature == self)
            .map_or(UNKNOWN, |(_, doc)| doc.name)
            .into()
    }
}

impl FeaturePlan {
    /// Returns everything in the catalogues that is not in this plan. Labels are not in them.
    #[must_use]
    pub fn rest(&self) -> Self {
        let request = REQUEST_CATALOGUE.iter();
        let request = request.filter(|(feature, _)| !self.request().contains(feature));
        let candidate = CANDIDATE_CATALOGUE.iter();
        let candidate = candidate.filter(|(feature, _)| !self.candidate().contains(feature));
        Self::of(
            request.map(|(feature, _)| *feature).collect(),
            candidate.map(|(feature, _)| feature.clone()).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_catalogue_is_its_features() {
        for (feature, doc) in REQUEST_CATALOGUE {
            assert_eq!(feature.name(), doc.name);
        }
        for (feature, doc) in CANDIDATE_CATALOGUE {
            assert_eq!(feature.name(), doc.name);
        }
    }

    #[test]
    fn names_of_columns_resolve_to_them_again() {
        let plan = FeaturePlan::resolve(
            &["request.mood?"],
            &["label.zone", "label.zone??", "engine.watts?"],
        )
        .unwrap();
        let request: Vec<_> = plan.request().iter().map(|feature| feature.name()).collect();
        let candidate: Vec<_> = plan.candidate().iter().map(CandidateFeature::name).collect();
        let candidate: Vec<&str> = candidate.iter().map(|name| &**name).collect();
        assert_eq!(FeaturePlan::resolve(&request, &candidate), Ok(plan));
    }

    #[test]
    fn a_plan_and_its_rest_are_the_whole_catalogue() {
        let plan = FeaturePlan::resolve(&["request.stream"], &["load.requests", "label.zone"]).unwrap();
        let rest = plan.rest();
        assert_eq!(rest.request().len(), REQUEST_CATALOGUE.len() - 1);
        assert_eq!(rest.candidate().len(), CANDIDATE_CATALOGUE.len() - 1);
        assert_eq!(
            FeaturePlan::default().rest().candidate().len(),
            CANDIDATE_CATALOGUE.len()
        );
    }
}
