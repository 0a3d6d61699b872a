//! Lines of pipelines: the configuration, and the scores of a decision.

use routing::{
    Filter, FilterTest, Pick, PipelineSpec, Scored, ScorerCall, Term, TermSource, Transcript, Weighing,
};
use serde::{Deserialize, Serialize};

use crate::fault_line::FaultLine;
use crate::host_call_line::HostCallLine;
use crate::number::{Number, Numbers};

/// [`PipelineSpec`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PipelineLine {
    /// Filters, in order.
    pub filters: Vec<FilterLine>,
    /// Scorers, in order.
    pub scorers: Vec<TermLine>,
    /// Choice, as the configuration names it.
    pub pick: PickLine,
}

/// [`Filter`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FilterLine {
    /// Test that a candidate must pass.
    pub test: TestLine,
    /// Set if a request without remaining candidates is rejected.
    pub strict: bool,
}

/// [`FilterTest`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
#[expect(missing_docs, reason = "the fields are the configuration's")]
pub enum TestLine {
    /// Filter by a label.
    Label {
        key: String,
        without: bool,
        values: Vec<String>,
    },
    /// Filter by a column.
    Feature {
        name: String,
        at_least: Number,
        at_most: Number,
    },
}

/// [`Term`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields are the configuration's")]
pub enum TermLine {
    /// A scorer.
    Policy { name: String, weight: Number },
    /// A column.
    Feature { name: String, weight: Number },
}

/// [`Pick`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PickLine {
    /// The highest.
    Max,
    /// Random choice, at this temperature.
    Softmax(Number),
    /// The higher of two.
    P2c,
}

/// [`Weighing`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WeighingLine {
    /// Scorers that are policies, in order.
    pub scorers: Vec<ScoredLine>,
    /// Score of each candidate in row order; NaN for filtered ones.
    pub figures: Numbers,
    /// Indices of filters that were ignored because they would have left no candidate.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ignored_filters: Vec<u32>,
}

/// [`Scored`]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ScoredLine {
    /// Name in the configuration.
    pub policy: String,
    /// Called version. `None` if the circuits of all were open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// SHA-256 of its component.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Parameters, a JSON object as text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub params: Option<String>,
    /// Scores in row order. `None` if it was skipped.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scores: Option<Numbers>,
    /// Fault.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fault: Option<FaultLine>,
    /// Host calls of the scorer.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub transcript: Vec<HostCallLine>,
    /// Set if the transcript is incomplete, so that its part cannot be replayed.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub truncated: bool,
}

impl From<&PipelineSpec> for PipelineLine {
    fn from(spec: &PipelineSpec) -> Self {
        let texts = |values: &[Box<str>]| values.iter().map(ToString::to_string).collect();
        let filters = spec.filters.iter().map(|filter| FilterLine {
            test: match &filter.test {
                FilterTest::Label { key, without, values } => TestLine::Label {
                    key: key.to_string(),
                    without: *without,
                    values: texts(values),
                },
                FilterTest::Feature {
                    name,
                    at_least,
                    at_most,
                } => TestLine::Feature {
                    name: name.to_string(),
                    at_least: Number(*at_least),
                    at_most: Number(*at_most),
                },
            },
            strict: filter.strict,
        });
        let scorers = spec.terms.iter().map(|term| {
            let weight = Number(term.weight);
            match &term.source {
                TermSource::Policy(name) => TermLine::Policy {
                    name: name.to_string(),
                    weight,
                },
                TermSource::Feature(name) => TermLine::Feature {
                    name: name.to_string(),
                    weight,
                },
            }
        });
        Self {
            filters: filters.collect(),
            scorers: scorers.collect(),
            pick: match spec.pick {
                Pick::Max => PickLine::Max,
                Pick::Softmax { temperature } => PickLine::Softmax(Number(temperature)),
                Pick::PowerOfTwo => PickLine::P2c,
            },
        }
    }
}

impl From<&PipelineLine> for PipelineSpec {
    fn from(line: &PipelineLine) -> Self {
        let filters = line.filters.iter().map(|filter| Filter {
            test: match &filter.test {
                TestLine::Label { key, without, values } => FilterTest::Label {
                    key: key.as_str().into(),
                    without: *without,
                    values: values.iter().map(|text| text.as_str().into()).collect(),
                },
                TestLine::Feature {
                    name,
                    at_least,
                    at_most,
                } => FilterTest::Feature {
                    name: name.as_str().into(),
                    at_least: at_least.0,
                    at_most: at_most.0,
                },
            },
            strict: filter.strict,
        });
        let terms = line.scorers.iter().map(|scorer| match scorer {
            TermLine::Policy { name, weight } => Term {
                source: TermSource::Policy(name.as_str().into()),
                weight: weight.0,
            },
            TermLine::Feature { name, weight } => Term {
                source: TermSource::Feature(name.as_str().into()),
                weight: weight.0,
            },
        });
        Self {
            filters: filters.collect(),
            terms: terms.collect(),
            pick: match &line.pick {
                PickLine::Max => Pick::Max,
                PickLine::Softmax(temperature) => Pick::Softmax {
                    temperature: temperature.0,
                },
                PickLine::P2c => Pick::PowerOfTwo,
            },
        }
    }
}

impl From<&Weighing> for WeighingLine {
    fn from(weighing: &Weighing) -> Self {
        let is_ignored = |filter: &u32| weighing.ignored & (1 << filter) != 0;
        Self {
            scorers: weighing.scored.iter().map(ScoredLine::from).collect(),
            figures: Numbers(weighing.figures.clone()),
            ignored_filters: (0..u32::BITS).filter(is_ignored).collect(),
        }
    }
}

impl From<&Scored> for ScoredLine {
    fn from(scored: &Scored) -> Self {
        let policy = scored.scorer.to_string();
        let Some(ScorerCall {
            version,
            origin,
            answer,
            transcript,
        }) = &scored.call
        else {
            return Self {
                policy,
                version: None,
                sha256: None,
                params: None,
                scores: None,
                fault: None,
                transcript: Vec::new(),
                truncated: false,
            };
        };
        let origin = origin.as_ref();
        Self {
            policy,
            version: Some(version.to_string()),
            sha256: origin.map(|origin| origin.sha256.to_string()),
            params: origin.map(|origin| origin.params.to_string()),
            scores: answer.as_ref().ok().map(|scores| Numbers(scores.clone())),
            fault: answer.as_ref().err().map(FaultLine::from),
            transcript: transcript.calls().iter().filter_map(HostCallLine::of).collect(),
            truncated: transcript.is_truncated(),
        }
    }
}

impl ScoredLine {
    /// Returns the host calls as a transcript.
    #[must_use]
    pub fn to_transcript(&self) -> Transcript {
        let calls = self.transcript.iter().map(HostCallLine::recorded_call);
        Transcript::of(calls.collect(), self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_comes_back_from_its_line_as_it_was() {
        let spec = PipelineSpec {
            filters: vec![
                Filter {
                    test: FilterTest::Label {
                        key: "zone".into(),
                        without: true,
                        values: vec!["eu".into(), "us".into()],
                    },
                    strict: true,
                },
                Filter {
                    test: FilterTest::Feature {
                        name: "load.requests".into(),
                        at_least: f64::NEG_INFINITY,
                        at_most: 0.1 + 0.2,
                    },
                    strict: false,
                },
            ],
            terms: vec![
                Term {
                    source: TermSource::Policy("mine".into()),
                    weight: 2.0,
                },
                Term {
                    source: TermSource::Feature("load.requests".into()),
                    weight: -0.3,
                },
            ],
            pick: Pick::Softmax { temperature: 0.1 },
        };
        for pick in [spec.pick, Pick::Max, Pick::PowerOfTwo] {
            let spec = PipelineSpec { pick, ..spec.clone() };
            let text = serde_json::to_string(&PipelineLine::from(&spec)).unwrap();
            let line: PipelineLine = serde_json::from_str(&text).unwrap();
            assert_eq!(PipelineSpec::from(&line), spec, "{text}");
        }
    }
}
