//! Pipeline: filters keep some of the candidates, the numbers of scorers and columns are scaled, weighed and added, and
//! one candidate is picked by the sum.
//!
//! A pipeline is a policy like any other, and never fails: a scorer that does is left out of that decision, and its
//! circuit keeps count. Everything that can be found once (which numbers are whose) is found when it is made, so that a
//! call only copies and adds.

mod filter;
mod layout;
mod observer;
mod pick;
mod scale;
mod spec;
#[cfg(test)]
mod tests;
mod weigher;
mod weighing;

use std::cell::Cell;
use std::sync::Arc;

use thiserror::Error;

use self::layout::View;
pub use self::observer::{PipelineObserver, Unobserved};
pub use self::pick::highest;
pub use self::spec::{Filter, FilterTest, Pick, PipelineSpec, Term, TermSource};
pub use self::weigher::{Weighed, Weigher, WeigherBuffers};
pub use self::weighing::{Scored, ScorerCall, Weighing};
use crate::circuit::CircuitChange;
use crate::decision::Verdict;
use crate::event::EventListener;
use crate::fault::{FaultKind, PolicyFault};
use crate::feature::{FeaturePlan, UnknownFeature};
use crate::policy::{DecisionInput, Policy, PolicyDescription};
use crate::transcript::Transcript;
use crate::versions::{Chosen, PolicyVersion, PolicyVersions};

thread_local! {
    /// Taken for the time of a decision and put back.
    static BUFFERS: Cell<Buffers> = Cell::default();
}

#[derive(Debug, Default)]
struct Buffers {
    weigher: WeigherBuffers,
    /// Numbers of one scorer's view.
    numbers: Vec<f64>,
}

/// The reason why a pipeline cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PipelineError {
    /// An unknown column.
    #[error(transparent)]
    Unknown(#[from] UnknownFeature),
    /// More filters than can be counted.
    #[error("a pipeline has at most 32 filters")]
    TooManyFilters,
    /// The numbers lack a column that a filter or a weight needs.
    #[error("a column that the pipeline looks at is not among the numbers")]
    Columns,
}

/// Policies put together.
#[derive(Debug)]
pub struct Pipeline {
    name: Box<str>,
    spec: Arc<PipelineSpec>,
    plan: FeaturePlan,
    /// Columns of the pipeline itself.
    columns: FeaturePlan,
    weigher: Weigher,
    scorers: Box<[ScorerPart]>,
    observer: Arc<dyn PipelineObserver>,
}

/// A scorer.
#[derive(Debug)]
struct ScorerPart {
    name: Box<str>,
    /// Versions fit to score. `None` if there are none: the scorer is left out.
    versions: Option<ScorerVersions>,
}

/// Versions of a scorer, and each one's view of the numbers.
#[derive(Debug)]
struct ScorerVersions {
    versions: PolicyVersions,
    /// Views, in the order of the versions.
    views: Box<[View]>,
}

impl Pipeline {
    /// Puts it together. `scorers` finds the policies of [`PipelineSpec::scorers`]; of their versions those take part
    /// that give scores and place no pairs, and a scorer without such a version is left out of every decision.
    ///
    /// # Errors
    /// [`PipelineError`]
    pub fn new(
        name: &str,
        spec: PipelineSpec,
        scorers: impl Fn(&str) -> Option<Arc<PolicyVersions>>,
        observer: Arc<dyn PipelineObserver>,
    ) -> Result<Self, PipelineError> {
        let find = |name| (name, scorers(name).and_then(|scorer| fit(&scorer)));
        let fit: Vec<(&str, Option<PolicyVersions>)> = spec.scorers().map(find).collect();
        let versions = fit.iter().filter_map(|(_, versions)| versions.as_ref());
        let plans = versions.flat_map(PolicyVersions::iter);
        let plans = plans.map(|version| version.policy.plan());
        let columns = spec.columns()?;
        let plan = layout::union(plans.chain([&columns]));
        let parts = fit.into_iter().map(|(name, versions)| {
            let versions = versions.map(|versions| ScorerVersions::new(versions, &plan));
            Ok(ScorerPart {
                name: name.into(),
                versions: versions.transpose()?,
            })
        });
        let scorers = parts.collect::<Result<_, PipelineError>>()?;
        Ok(Self {
            name: name.into(),
            weigher: Weigher::new(&spec, &plan)?,
            scorers,
            spec: Arc::new(spec),
            plan,
            columns,
            observer,
        })
    }

    /// Returns its specification.
    #[must_use]
    pub fn spec(&self) -> &Arc<PipelineSpec> {
        &self.spec
    }

    /// Returns its scorers that have a version fit to score.
    pub fn scorers(&self) -> impl Iterator<Item = &PolicyVersions> {
        let versions = self.scorers.iter().filter_map(|scorer| scorer.versions.as_ref());
        versions.map(|scorer| &scorer.versions)
    }

    fn decide_into(&self, input: &DecisionInput<'_>, mut weighing: Option<&mut Weighing>) -> Verdict {
        let mut buffers = BUFFERS.take();
        let Buffers { weigher, numbers } = &mut buffers;
        let weighed = self.weigher.weigh(input, weigher, |at, scores| {
            let scored = weighing.as_deref_mut().map(|weighing| &mut weighing.scored);
            self.score(at, input, numbers, scores, scored)
        });
        for filter in (0..self.spec.filters.len()).filter(|at| weighed.ignored & (1 << at) != 0) {
            self.observer.ignored(filter);
        }
        if let Some(weighing) = weighing {
            weighing.figures.extend_from_slice(weigher.figures());
            weighing.ignored = weighed.ignored;
        }
        BUFFERS.set(buffers);
        weighed.verdict
    }

    /// Calls a scorer. Returns whether it gave scores.
    fn score(
        &self,
        at: usize,
        input: &DecisionInput<'_>,
        numbers: &mut Vec<f64>,
        scores: &mut [f64],
        scored: Option<&mut Vec<Scored>>,
    ) -> bool {
        let part = &self.scorers[at];
        let versions = part.versions.as_ref();
        let chosen = versions.and_then(|part| part.versions.choose(input.request.now_us));
        let (answer, transcript) = match (versions, chosen) {
            (Some(part), Some(chosen)) => {
                part.score(chosen.version(), input, numbers, scores, scored.is_some())
            }
            _ => (Ok(()), Transcript::default()),
        };
        let gave = chosen.is_some() && answer.is_ok();
        if let Some(chosen) = chosen {
            self.report(at, chosen, &answer, input);
        }
        if !gave {
            self.observer.left_out(at);
        }
        if let Some(scored) = scored {
            scored.push(Scored {
                scorer: part.name.clone(),
                call: chosen.map(|chosen| ScorerCall {
                    version: Arc::clone(&chosen.version().id),
                    origin: chosen.version().policy.origin().cloned(),
                    answer: answer.map(|()| scores.to_vec()),
                    transcript,
                }),
            });
        }
        gave
    }

    /// Reports the result to the version's circuit, and faults and changes to the observer.
    fn report(
        &self,
        at: usize,
        chosen: Chosen<'_>,
        answer: &Result<(), PolicyFault>,
        input: &DecisionInput<'_>,
    ) {
        let now = input.request.now_us;
        match answer {
            Ok(()) => {
                if chosen.succeeded(now) == CircuitChange::Closed {
                    self.observer.recovered(at, chosen.version());
                }
            }
            Err(fault) => {
                let change = chosen.failed(now);
                self.observer
                    .failed(at, chosen.version(), fault, change, input.request);
            }
        }
    }
}

impl ScorerVersions {
    fn new(versions: PolicyVersions, plan: &FeaturePlan) -> Result<Self, PipelineError> {
        let views = versions
            .iter()
            .map(|version| View::new(version.policy.plan(), plan));
        let views = views.collect::<Option<_>>().ok_or(PipelineError::Columns)?;
        Ok(Self { versions, views })
    }

    fn score(
        &self,
        version: &PolicyVersion,
        input: &DecisionInput<'_>,
        numbers: &mut Vec<f64>,
        scores: &mut [f64],
        is_recorded: bool,
    ) -> (Result<(), PolicyFault>, Transcript) {
        let mut versions = self.versions.iter().zip(&self.views);
        let found = versions.find(|(known, _)| std::ptr::eq(*known, version));
        let (Some(scorer), Some((_, view))) = (version.policy.scorer(), found) else {
            let error = PolicyFault {
                policy: self.versions.name().into(),
                kind: FaultKind::NoInstance,
                detail: "it is no scorer".to_owned(),
            };
            return (Err(error), Transcript::default());
        };
        let input = DecisionInput {
            numbers: view.of(input.numbers, input.ids.len(), numbers),
            ..*input
        };
        if is_recorded {
            scorer.score_recording(&input, scores)
        } else {
            (scorer.score(&input, scores), Transcript::default())
        }
    }
}

impl PolicyDescription for Pipeline {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&self) -> &FeaturePlan {
        &self.plan
    }

    fn needs_tokens(&self) -> bool {
        self.columns.needs_tokens() || self.scorers().any(PolicyVersions::needs_tokens)
    }

    fn needs_prefix(&self) -> bool {
        self.columns.needs_prefix() || self.scorers().any(PolicyVersions::needs_prefix)
    }

    fn pipeline(&self) -> Option<&Arc<PipelineSpec>> {
        Some(&self.spec)
    }
}

impl Policy for Pipeline {
    fn decide(&self, input: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        Ok(self.decide_into(input, None))
    }

    fn decide_recording(&self, input: &DecisionInput<'_>) -> (Result<Verdict, PolicyFault>, Transcript) {
        let mut weighing = Weighing {
            scored: Vec::with_capacity(self.scorers.len()),
            figures: Vec::with_capacity(input.ids.len()),
            ignored: 0,
        };
        let verdict = self.decide_into(input, Some(&mut weighing));
        (Ok(verdict), Transcript::of_weighing(weighing))
    }

    fn listeners(&self) -> Vec<Arc<dyn EventListener>> {
        let active = self.scorers().map(PolicyVersions::active);
        active.flat_map(|version| version.policy.listeners()).collect()
    }
}

/// Returns the versions that give scores and place no pairs. `None` if there are none.
fn fit(scorer: &PolicyVersions) -> Option<PolicyVersions> {
    let is_fit = |version: &&PolicyVersion| scores_singly(&*version.policy);
    let mut fit = scorer.iter().filter(is_fit).cloned();
    Some(PolicyVersions::new(fit.next()?, fit))
}

/// Returns whether a policy can be a scorer of a pipeline, which chooses one worker at a time.
#[must_use]
pub fn scores_singly(policy: &dyn Policy) -> bool {
    policy.scorer().is_some() && !policy.plan().pairs()
}
