//! `conductor policy features`: all columns that a policy can request.

use std::fmt;

use routing::{CANDIDATE_CATALOGUE, FeatureDoc, FeaturePlan, REQUEST_CATALOGUE};
use serde::Serialize;

use super::print;
use crate::Exit;
use crate::args::FeaturesArgs;

/// A column whose name the author completes, which therefore is in no catalogue.
const LABEL: FeatureDoc = FeatureDoc {
    name: "label.KEY",
    unit: "as the label",
    freshness: "the active configuration",
    unknown: "the worker has no label `KEY`",
    meaning: "value of the label `KEY` if it is a finite number, else a 53-bit hash of its text",
};

/// Lists them.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn run(args: &FeaturesArgs) -> anyhow::Result<Exit> {
    print(&FeatureReport::new(), args.json)?;
    Ok(Exit::Success)
}

/// All features.
#[derive(Debug, Serialize)]
struct FeatureReport {
    request: Vec<Feature>,
    candidate: Vec<Feature>,
}

/// One feature.
#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    unit: &'static str,
    freshness: &'static str,
    unknown: &'static str,
    cost: &'static str,
    meaning: &'static str,
}

impl FeatureReport {
    fn new() -> Self {
        let request = REQUEST_CATALOGUE.iter().map(|(_, doc)| {
            let plan = FeaturePlan::resolve(&[doc.name], &[]);
            Feature::new(doc, plan.unwrap_or_default())
        });
        let candidate = CANDIDATE_CATALOGUE
            .iter()
            .map(|(_, doc)| doc)
            .chain([&LABEL])
            .map(|doc| {
                let plan = FeaturePlan::resolve(&[], &[doc.name]);
                Feature::new(doc, plan.unwrap_or_default())
            });
        Self {
            request: request.collect(),
            candidate: candidate.collect(),
        }
    }
}

impl Feature {
    /// Returns the cost of a feature: the work of the router for a plan with it alone.
    fn new(doc: &FeatureDoc, plan: FeaturePlan) -> Self {
        let cost = if plan.needs_prefix() {
            "the prompt's tokens, and one query of the prefix index a request for all columns that need it together"
        } else if plan.needs_tokens() {
            "the prompt's tokens: one call to a worker's /tokenize a request, unless the prompt is token ids"
        } else {
            "none beyond laying out the number"
        };
        Self {
            name: doc.name,
            unit: doc.unit,
            freshness: doc.freshness,
            unknown: doc.unknown,
            cost,
            meaning: doc.meaning,
        }
    }
}

impl fmt::Display for FeatureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Numbers of the request (`request-features` of a plan)\n")?;
        self.request.iter().try_for_each(|feature| feature.fmt(f))?;
        writeln!(f, "Numbers of a candidate (`candidate-features` of a plan)\n")?;
        self.candidate.iter().try_for_each(|feature| feature.fmt(f))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        writeln!(f, "    {}", self.meaning)?;
        writeln!(f, "    unit       {}", self.unit)?;
        writeln!(f, "    freshness  {}", self.freshness)?;
        writeln!(f, "    NaN        {}", self.unknown)?;
        writeln!(f, "    cost       {}\n", self.cost)
    }
}
