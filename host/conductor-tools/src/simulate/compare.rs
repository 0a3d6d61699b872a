//! Policies beside the first of them, on the same requests with the same seeds.

use std::fmt;

use serde::Serialize;
use simulator::Summary;

use super::estimate::Estimate;
use super::figures::{FIGURES, Figure, Unit};
use super::grid::{Grid, GridRuns, SimulationRun};
use super::verdict::{ComparisonVerdict, judged};
use operator_tools::table::{Side, Table};

/// A policy beside the baseline, at one speed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Comparison {
    pub(super) baseline: String,
    pub(super) policy: String,
    pub(super) speed: f64,
    /// Seeds that both were run with; only these count.
    pub(super) seeds: usize,
    pub(super) figures: Vec<Compared>,
    pub(super) paired: Paired,
    pub(super) verdict: ComparisonVerdict,
    /// The verdict in words.
    pub(super) words: String,
}

/// A figure of both.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Compared {
    #[serde(rename = "figure", serialize_with = "by_name")]
    pub(super) figure: &'static Figure,
    pub(super) baseline: Estimate,
    pub(super) policy: Estimate,
    /// The policy's less the baseline's, seed by seed.
    pub(super) difference: Estimate,
}

/// Differences of each request between two policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Paired {
    /// Share of the requests whose first token came earlier, or came at all.
    pub(super) faster: Estimate,
    /// Share of those whose came later, or never.
    pub(super) slower: Estimate,
    /// Mean difference of the times to first token in seconds, over the requests that have one under both.
    pub(super) ttft_s: Estimate,
}

impl Comparison {
    /// Compares each policy with the first, speed by speed.
    pub(super) fn all(grid: &Grid, made: &GridRuns) -> Vec<Self> {
        let cells = grid.cells();
        let width = grid.contestants.len();
        let mut all = Vec::new();
        for (first, at_speed) in made.runs.chunks(width).enumerate() {
            let Some((baseline, others)) = at_speed.split_first() else {
                continue;
            };
            for (other, runs) in others.iter().enumerate() {
                let both: Vec<[&SimulationRun; 2]> = baseline
                    .iter()
                    .zip(runs)
                    .filter_map(|(baseline, run)| Some([baseline.as_ref()?, run.as_ref()?]))
                    .collect();
                if both.is_empty() {
                    continue;
                }
                let (speed, contestant) = cells[first * width + other + 1];
                let labels = [&grid.contestants[0].label, &contestant.label];
                all.push(Self::of(labels, speed, &both));
            }
        }
        all
    }

    fn of([baseline, policy]: [&String; 2], speed: f64, both: &[[&SimulationRun; 2]]) -> Self {
        let is_shown = |figure: &&Figure| both.iter().flatten().any(|run| (figure.is_shown)(&run.summary));
        let figures = FIGURES
            .iter()
            .filter(is_shown)
            .map(|figure| Compared::of(figure, both))
            .collect();
        let paired = Paired::of(both);
        let effective = Estimate::of(
            both.iter()
                .map(|[baseline, run]| run.summary.effective - baseline.summary.effective),
        );
        let has_failed = |side: &usize| both.iter().any(|both| both[*side].fault().is_some());
        let (verdict, words) = match [0, 1].iter().find(|side| has_failed(side)) {
            Some(side) => (
                ComparisonVerdict::None,
                format!(
                    "no verdict: {} failed to decide, and its figures are not its own",
                    [baseline, policy][*side]
                ),
            ),
            None => judged([baseline, policy], &paired.ttft_s, &effective),
        };
        Self {
            baseline: baseline.clone(),
            policy: policy.clone(),
            speed,
            seeds: both.len(),
            figures,
            paired,
            verdict,
            words,
        }
    }

    /// Returns the heading of the comparison.
    pub(super) fn heading(&self) -> String {
        let seeds = match self.seeds {
            1 => "one seed".to_owned(),
            seeds => format!("{seeds} seeds"),
        };
        format!(
            "{} against {} at x{}, {seeds}",
            self.policy, self.baseline, self.speed
        )
    }

    /// Returns a sentence about the single requests.
    pub(super) fn by_request(&self) -> String {
        let Paired {
            faster,
            slower,
            ttft_s,
        } = &self.paired;
        format!(
            "Of the requests {} had their first token earlier, {} later; {} s in the mean of those that both answered.",
            Unit::Share.format(faster, true),
            Unit::Share.format(slower, true),
            Unit::Fine.difference(ttft_s),
        )
    }

    /// Returns name, both figures and the difference, figure by figure.
    pub(super) fn lines(&self) -> Vec<[String; 4]> {
        let line = |compared: &Compared| {
            let Figure { name, unit, .. } = compared.figure;
            [
                (*name).to_owned(),
                unit.format(&compared.baseline, true),
                unit.format(&compared.policy, true),
                unit.difference(&compared.difference),
            ]
        };
        self.figures.iter().map(line).collect()
    }
}

impl Compared {
    fn of(figure: &'static Figure, both: &[[&SimulationRun; 2]]) -> Self {
        let value = |summary: &Summary| (figure.of)(summary);
        let side = |side: usize| Estimate::of(both.iter().map(|both| value(&both[side].summary)));
        Self {
            figure,
            baseline: side(0),
            policy: side(1),
            difference: Estimate::of(
                both.iter()
                    .map(|[baseline, run]| value(&run.summary) - value(&baseline.summary)),
            ),
        }
    }
}

impl Paired {
    fn of(both: &[[&SimulationRun; 2]]) -> Self {
        let counted: Vec<[f64; 3]> = both
            .iter()
            .map(|[baseline, run]| paired(&baseline.ttft_us, &run.ttft_us))
            .collect();
        let over_seeds = |at: usize| Estimate::of(counted.iter().map(|counted| counted[at]));
        Self {
            faster: over_seeds(0),
            slower: over_seeds(1),
            ttft_s: over_seeds(2),
        }
    }
}

/// Shares of the requests that were faster and slower, and the mean difference in seconds.
fn paired(baseline: &[Option<u64>], policy: &[Option<u64>]) -> [f64; 3] {
    let (mut faster, mut slower, mut answered) = (0_usize, 0_usize, 0_usize);
    let mut difference_us = 0.0;
    for pair in baseline.iter().zip(policy) {
        match pair {
            (Some(baseline), Some(policy)) => {
                faster += usize::from(policy < baseline);
                slower += usize::from(policy > baseline);
                answered += 1;
                difference_us += *policy as f64 - *baseline as f64;
            }
            (None, Some(_)) => faster += 1,
            (Some(_), None) => slower += 1,
            (None, None) => {}
        }
    }
    let share = |count: usize| count as f64 / baseline.len() as f64;
    [
        share(faster),
        share(slower),
        difference_us / answered as f64 / 1e6,
    ]
}

fn by_name<S: serde::Serializer>(figure: &&'static Figure, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(figure.name)
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        let mut table = Table::new(&[
            ("", Side::Left),
            (&self.baseline, Side::Right),
            (&self.policy, Side::Right),
            ("difference", Side::Right),
        ]);
        self.lines().into_iter().for_each(|line| table.row(line));
        write!(f, "{table}")?;
        writeln!(f, "{}\nVerdict: {}", self.by_request(), self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_only_one_answers_was_faster_there_and_is_in_no_mean() {
        let baseline = [Some(1_000_000), Some(5), None, None, Some(7)];
        let policy = [Some(500_000), None, Some(9), None, Some(7)];
        assert_eq!(paired(&baseline, &policy), [0.4, 0.2, -0.25]);
    }
}
