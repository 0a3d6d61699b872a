//! Weighing of numbers and scores: the candidates left, the sum of each, and the choice. It has no reference to
//! policies.

use super::PipelineError;
use super::filter::{self, ColumnFilter};
use super::layout::column;
use super::scale::Scale;
use super::spec::{Pick, PipelineSpec, SPARE, TermSource};
use crate::decision::{Choice, Verdict};
use crate::feature::{CandidateFeature, FeaturePlan};
use crate::policy::DecisionInput;
use crate::random::SplitMix64;

/// Stream of random numbers, distinct from those of the decision's scorers.
const STREAM: u64 = 0x7069_7065_6c69_6e65;

/// A pipeline without its scorers.
#[derive(Debug)]
pub struct Weigher {
    filters: Box<[ColumnFilter]>,
    weights: Box<[Weight]>,
    /// Columns of requests in flight and of the weight of a worker, used if nothing is left to weigh.
    spare: Option<[usize; 2]>,
    pick: Pick,
    /// Numbers of the request, and of a row.
    shape: (usize, usize),
}

#[derive(Debug)]
struct Weight {
    source: Source,
    weight: f64,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Column(usize),
    /// Counted among the scorers.
    Scorer(usize),
}

/// Result of weighing.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// Verdict: a candidate, or the rejection of a strict filter.
    pub verdict: Verdict,
    /// A bit for each filter that would have left no candidate and was not applied, the first one's lowest.
    pub ignored: u32,
}

/// Buffers of a weigher, used again by each call.
#[derive(Debug, Default)]
pub struct WeigherBuffers {
    left: Vec<u32>,
    others: Vec<u32>,
    scores: Vec<f64>,
    figures: Vec<f64>,
}

impl WeigherBuffers {
    /// Returns the figure of each candidate in the last call, from 0 to 1 where anything was weighed; NaN of those that
    /// were filtered out.
    #[must_use]
    pub fn figures(&self) -> &[f64] {
        &self.figures
    }
}

impl Weigher {
    /// Returns a weigher for numbers laid out by a plan that has every column of the specification.
    ///
    /// # Errors
    /// [`PipelineError::Columns`] where it has not.
    pub fn new(spec: &PipelineSpec, plan: &FeaturePlan) -> Result<Self, PipelineError> {
        if spec.filters.len() > u32::BITS as usize {
            return Err(PipelineError::TooManyFilters);
        }
        let place = |feature: &CandidateFeature| column(feature, plan).ok_or(PipelineError::Columns);
        let filters = spec.filters.iter().map(|filter| {
            let column = place(&filter::feature(&filter.test)?)?;
            Ok(ColumnFilter::new(filter, column))
        });
        let mut scorers = 0..;
        let weights = spec.terms.iter().map(|term| {
            let source = match &term.source {
                TermSource::Feature(name) => Source::Column(place(&CandidateFeature::resolve(name)?)?),
                TermSource::Policy(_) => Source::Scorer(scorers.next().unwrap_or_default()),
            };
            let weight = term.weight;
            Ok(Weight { source, weight })
        });
        let spare = if spec.is_always_weighed() {
            None
        } else {
            let [requests, weight] = SPARE.map(|feature| place(&feature));
            Some([requests?, weight?])
        };
        Ok(Self {
            filters: filters.collect::<Result<_, PipelineError>>()?,
            weights: weights.collect::<Result<_, PipelineError>>()?,
            spare,
            pick: spec.pick,
            shape: (plan.request().len(), plan.candidate().len()),
        })
    }

    /// Decides. `call_scorer` fills in the scores of a scorer, by its place among them, and returns whether it gave
    /// any.
    pub fn weigh(
        &self,
        input: &DecisionInput<'_>,
        buffers: &mut WeigherBuffers,
        mut call_scorer: impl FnMut(usize, &mut [f64]) -> bool,
    ) -> Weighed {
        let matrix = &input.numbers[self.shape.0..];
        let number = |row: u32, column: usize| matrix[row as usize * self.shape.1 + column];
        let ignored = match self.filter(input.ids.len(), buffers, number) {
            Ok(ignored) => ignored,
            Err(verdict) => return verdict,
        };
        if buffers.left.is_empty() {
            let verdict = Verdict::Pass;
            return Weighed { verdict, ignored };
        }
        let WeigherBuffers {
            left,
            scores,
            figures,
            ..
        } = buffers;
        figures.resize(input.ids.len(), f64::NAN);
        scores.resize(input.ids.len(), f64::NAN);
        for row in &*left {
            figures[*row as usize] = 0.0;
        }
        let mut total = 0.0;
        for Weight { source, weight } in &self.weights {
            match *source {
                Source::Column(column) => add(left, figures, *weight, |row| number(row, column)),
                Source::Scorer(scorer) if call_scorer(scorer, scores) => {
                    add(left, figures, *weight, |row| scores[row as usize]);
                }
                Source::Scorer(_) => continue,
            }
            total += weight.abs();
        }
        let pick = if total > 0.0 {
            left.iter().for_each(|row| figures[*row as usize] /= total);
            self.pick
        } else {
            let [requests, weight] = self.spare.unwrap_or_default();
            for row in &*left {
                figures[*row as usize] = -(number(*row, requests) + 1.0) / number(*row, weight);
            }
            Pick::Max
        };
        let mut random = SplitMix64::of_decision(input.request.seed() ^ STREAM, input.request.attempt);
        let row = pick.one(left, figures, &mut random);
        let choice = Choice {
            row,
            prefill: None,
            score: figures[row as usize],
        };
        Weighed {
            verdict: Verdict::Route(choice),
            ignored,
        }
    }

    /// Leaves the kept candidates in the buffers. Returns the ignored filters.
    fn filter(
        &self,
        candidates: usize,
        buffers: &mut WeigherBuffers,
        number: impl Fn(u32, usize) -> f64,
    ) -> Result<u32, Weighed> {
        let WeigherBuffers { left, others, .. } = buffers;
        buffers.figures.clear();
        left.clear();
        left.extend(0..candidates as u32);
        let mut ignored = 0;
        for (at, filter) in self.filters.iter().enumerate() {
            others.clear();
            others.extend(
                left.iter()
                    .filter(|row| filter.keeps(number(**row, filter.column))),
            );
            if !others.is_empty() {
                std::mem::swap(left, others);
            } else if let Some(rejection) = &filter.rejection {
                let verdict = Verdict::Reject(rejection.clone());
                return Err(Weighed { verdict, ignored });
            } else {
                ignored |= 1 << at;
            }
        }
        Ok(ignored)
    }
}

/// Adds weighed numbers to the figures of those that are left.
fn add(left: &[u32], figures: &mut [f64], weight: f64, number: impl Fn(u32) -> f64) {
    let scale = Scale::of(left.iter().map(|row| number(*row)));
    for row in left {
        let place = scale.place(number(*row));
        let wanted = if weight > 0.0 { place } else { 1.0 - place };
        figures[*row as usize] += weight.abs() * wanted;
    }
}
