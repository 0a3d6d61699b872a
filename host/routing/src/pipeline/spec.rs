//! Specification of a pipeline, as in the configuration.

use std::fmt;

use super::filter;
use crate::feature::{CandidateFeature, FeaturePlan, UnknownFeature};

/// A pipeline: who may be chosen, what is weighed, and how one is chosen by it.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineSpec {
    /// Applied in order.
    pub filters: Vec<Filter>,
    /// Weighed and added.
    pub terms: Vec<Term>,
    /// Rule of the choice.
    pub pick: Pick,
}

/// Keeps some of the candidates.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// Condition of the filter.
    pub test: FilterTest,
    /// Set if a request is rejected for which the filter would keep no candidate. Else the filter is ignored for it.
    pub strict: bool,
}

/// Condition by which a filter keeps candidates.
#[derive(Debug, Clone, PartialEq)]
pub enum FilterTest {
    /// Label. Texts are compared as [`crate::label_value`] has them; a worker without the label has none of them.
    Label {
        /// Key.
        key: Box<str>,
        /// Set if those are kept that have none of the values.
        without: bool,
        /// Accepted values, at least one.
        values: Vec<Box<str>>,
    },
    /// Number, bounds included. An unknown number is within any bounds.
    Feature {
        /// Name.
        name: Box<str>,
        /// Minus infinity for no bound.
        at_least: f64,
        /// Infinity for no bound.
        at_most: f64,
    },
}

/// Weighed number or score.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The event.
    pub source: TermSource,
    /// Finite, not 0; below 0 less is better, which of a scorer's numbers it never is.
    pub weight: f64,
}

/// Source of a term's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermSource {
    /// Policy that is a scorer, by name.
    Policy(Box<str>),
    /// A column, by name.
    Feature(Box<str>),
}

/// Rule that chooses a candidate, once each has a figure from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pick {
    /// The highest; of equal ones any.
    Max,
    /// Any candidate, with a chance in proportion to `exp(figure / temperature)`.
    Softmax {
        /// Temperature, above 0. At 0.1 a candidate that is better by 0.1 is chosen 2.7 times as often.
        temperature: f64,
    },
    /// The higher of two that are drawn.
    PowerOfTwo,
}

/// Columns by which the least loaded is known.
pub(super) const SPARE: [CandidateFeature; 2] = [CandidateFeature::Requests, CandidateFeature::Weight];

impl PipelineSpec {
    /// Returns the policies that are its scorers, in order.
    pub fn scorers(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().filter_map(|term| match &term.source {
            TermSource::Policy(name) => Some(&**name),
            TermSource::Feature(_) => None,
        })
    }

    /// Returns whether there is something to weigh whatever becomes of the scorers.
    pub(super) fn is_always_weighed(&self) -> bool {
        let mut terms = self.terms.iter();
        terms.any(|term| matches!(term.source, TermSource::Feature(_)))
    }

    /// Returns the columns that it looks at itself.
    ///
    /// # Errors
    /// For the first that is unknown.
    pub fn columns(&self) -> Result<FeaturePlan, UnknownFeature> {
        let filtered = self.filters.iter().map(|filter| filter::feature(&filter.test));
        let weighed = self.terms.iter().filter_map(|term| match &term.source {
            TermSource::Policy(_) => None,
            TermSource::Feature(name) => Some(CandidateFeature::resolve(name)),
        });
        // Where nothing may come to be weighed, the least loaded has to be known.
        let spare = SPARE.into_iter().filter(|_| !self.is_always_weighed());
        let columns = filtered.chain(weighed).chain(spare.map(Ok));
        Ok(FeaturePlan::of(Vec::new(), columns.collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.test {
            FilterTest::Label { key, without, values } => {
                let word = if *without { "is not" } else { "is" };
                write!(f, "label {key} {word} {}", values.join(" or "))
            }
            FilterTest::Feature {
                name,
                at_least,
                at_most,
            } => {
                f.write_str(name)?;
                if *at_least > f64::NEG_INFINITY {
                    write!(f, " at least {at_least}")?;
                }
                if *at_most < f64::INFINITY {
                    write!(f, " at most {at_most}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (TermSource::Policy(name) | TermSource::Feature(name)) = &self.source;
        write!(f, "{name} x {}", self.weight)
    }
}

impl Pick {
    /// Returns its name in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Softmax { .. } => "softmax",
            Self::PowerOfTwo => "p2c",
        }
    }
}
