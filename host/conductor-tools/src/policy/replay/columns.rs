//! The numbers of one plan, found among those that were recorded for another.

use decision_log::PolicyLine;
use routing::{CandidateFeature, FeaturePlan, RequestFeature};

use super::log::RecordedDecision;

/// Positions of a plan's columns in the decisions of one policy line.
pub(super) struct Columns {
    request: Vec<ColumnPlace>,
    candidate: Vec<CandidatePlace>,
}

/// Position of a number.
#[derive(Debug, Clone, Copy)]
enum ColumnPlace {
    /// Position among the recorded policy's own numbers.
    Own(usize),
    /// Position among the additionally recorded numbers.
    More(usize),
    /// Nowhere: it is not known to anybody.
    Unknown,
}

/// Position of a column.
enum CandidatePlace {
    RecordedDecision(ColumnPlace),
    Weight,
    Role,
    Label(Box<str>),
}

impl Columns {
    /// Finds the numbers of a plan. If some were not recorded, returns their names.
    pub(super) fn find(plan: &FeaturePlan, recorded: &PolicyLine) -> Result<Self, Vec<String>> {
        let (own, more) = (
            resolved(&recorded.request_columns, &recorded.columns),
            resolved(&recorded.more_request_columns, &recorded.more_columns),
        );
        let mut missing = Vec::new();
        let request = plan.request().iter().map(|feature| {
            let place = match feature {
                RequestFeature::Unknown => Some(ColumnPlace::Unknown),
                known => place(own.request(), more.request(), known),
            };
            place.unwrap_or_else(|| {
                missing.push(feature.name().to_owned());
                ColumnPlace::Unknown
            })
        });
        let request = request.collect();
        let candidate = plan.candidate().iter().map(|feature| {
            let place = match feature {
                CandidateFeature::Unknown => Some(ColumnPlace::Unknown),
                known => place(own.candidate(), more.candidate(), known),
            };
            match (place, feature) {
                (Some(place), _) => CandidatePlace::RecordedDecision(place),
                (None, CandidateFeature::Weight) => CandidatePlace::Weight,
                (None, CandidateFeature::Role) => CandidatePlace::Role,
                (None, CandidateFeature::Label(key)) => CandidatePlace::Label(key.clone()),
                (None, missed) => {
                    missing.push(missed.name().into_owned());
                    CandidatePlace::RecordedDecision(ColumnPlace::Unknown)
                }
            }
        });
        let candidate = candidate.collect();
        if missing.is_empty() {
            Ok(Self { request, candidate })
        } else {
            Err(missing)
        }
    }

    /// Returns the plan's numbers in its layout.
    pub(super) fn lay_out(&self, recorded: &RecordedDecision) -> Vec<f64> {
        let (line, policy) = (&recorded.line, &recorded.policy);
        let request = |place: &ColumnPlace| match *place {
            ColumnPlace::Own(at) => line.numbers.0[at],
            ColumnPlace::More(at) => line.more_numbers.0[at],
            ColumnPlace::Unknown => f64::NAN,
        };
        let mut numbers: Vec<f64> = self.request.iter().map(request).collect();
        for (row, worker) in recorded.workers.iter().enumerate() {
            numbers.extend(self.candidate.iter().map(|place| match place {
                CandidatePlace::RecordedDecision(ColumnPlace::Own(at)) => {
                    line.numbers.0[policy.request_columns.len() + row * policy.columns.len() + at]
                }
                CandidatePlace::RecordedDecision(ColumnPlace::More(at)) => {
                    line.more_numbers.0
                        [policy.more_request_columns.len() + row * policy.more_columns.len() + at]
                }
                CandidatePlace::RecordedDecision(ColumnPlace::Unknown) => f64::NAN,
                CandidatePlace::Weight => worker.spec().weight,
                CandidatePlace::Role => worker.spec().role.number(),
                CandidatePlace::Label(key) => worker.label_number(key),
            }));
        }
        numbers
    }
}

fn place<F: PartialEq>(own: &[F], more: &[F], feature: &F) -> Option<ColumnPlace> {
    let at = |features: &[F]| features.iter().position(|recorded| recorded == feature);
    at(own)
        .map(ColumnPlace::Own)
        .or_else(|| at(more).map(ColumnPlace::More))
}

/// Resolves recorded names to features. Features of another version are unknown.
pub(super) fn resolved(request: &[String], candidate: &[String]) -> FeaturePlan {
    let optional = |names: &[String]| -> Vec<String> {
        let bare = names.iter().map(|name| name.trim_end_matches('?'));
        bare.map(|name| format!("{name}?")).collect()
    };
    FeaturePlan::resolve(&optional(request), &optional(candidate)).unwrap_or_default()
}
