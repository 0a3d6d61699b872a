//! Report on the runs, for people and for tools.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use simulator::{Breakdown, Summary, TraceFacts};

use super::breakdowns;
use super::compare::Comparison;
use super::estimate::Estimate;
use super::figures::{FIGURES, Figure};
use super::grid::{Grid, GridRuns, SimulationRun};
use super::html::Curves;
use super::recorded::RecordedReport;
use super::setting::SettingReport;
use operator_tools::table::{Side, Table};

/// Note on predictions that a policy must not lower by fetches once more.
const FETCHES_IN_COSTS: &str = "The predicted prefill times contain fetched prefixes (--costs exact or wrong, with --fetch). \
A policy that subtracts them itself counts them twice: mooncake-alg1 has {\"prefetch\":\"in-costs\"} for this.";

/// All runs, and their common properties.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SimulationReport {
    pub(super) setting: SettingReport,
    pub(super) trace: String,
    /// Facts of the first seed's trace at the speed of its recording.
    pub(super) facts: TraceFacts,
    pub(super) workers: usize,
    /// Report on the decision log, if one was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recording: Option<RecordedReport>,
    pub(super) seeds: Vec<u64>,
    /// Difference between the seeds.
    pub(super) seeds_vary: &'static str,
    /// True if all runs were made; false after an interrupt.
    pub(super) complete: bool,
    pub(super) runs_made: usize,
    #[serde(rename = "runs-asked")]
    pub(super) runs_requested: usize,
    pub(super) rows: Vec<ReportRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) comparisons: Vec<Comparison>,
    /// True if the text has the breakdowns.
    #[serde(skip)]
    pub(super) shows_breakdown: bool,
}

/// A policy at a speed. In JSON each figure is its mean over the seeds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ReportRow {
    /// Position of its policy in the arguments.
    #[serde(skip)]
    pub(super) contestant: usize,
    pub(super) policy: String,
    pub(super) speed: f64,
    /// Seeds that it was run with.
    pub(super) seeds: usize,
    /// Summaries by seed.
    #[serde(skip)]
    pub(super) summaries: Vec<Summary>,
    #[serde(flatten)]
    means: Value,
    /// Half the width of each mean's 95 % confidence interval, in the shape of the figures. `None` for a single seed.
    half_widths: Option<Value>,
    /// Decisions of all runs that the fallback made instead, because the policy passed or failed.
    fallbacks: u64,
    /// Problem of the policy. Its figures are not valid then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
    /// Curves of the first seed.
    #[serde(skip)]
    pub(super) curves: Option<Curves>,
}

impl SimulationReport {
    pub(super) fn of(grid: &Grid, made: GridRuns, recording: Option<RecordedReport>) -> anyhow::Result<Self> {
        let requested = made.runs.iter().map(Vec::len).sum();
        let done = made.runs.iter().flatten().flatten().count();
        let comparisons = match grid.keep.ttft {
            true => Comparison::all(grid, &made),
            false => Vec::new(),
        };
        let mut rows = Vec::new();
        for (cell, ((speed, contestant), runs)) in grid.cells().into_iter().zip(made.runs).enumerate() {
            let runs: Vec<SimulationRun> = runs.into_iter().flatten().collect();
            if !runs.is_empty() {
                let number = cell % grid.contestants.len();
                rows.push(ReportRow::of(number, contestant.label.clone(), speed, runs)?);
            }
        }
        let setting = &grid.setting;
        Ok(Self {
            setting: setting.report.clone(),
            trace: setting.trace.name.clone(),
            facts: setting.facts.clone(),
            workers: setting.spec.cluster.workers.len(),
            recording,
            seeds: grid.seeds.clone(),
            seeds_vary: setting.source.varies(),
            complete: !made.stopped,
            runs_made: done,
            runs_requested: requested,
            rows,
            comparisons,
            shows_breakdown: false,
        })
    }

    /// Returns the speeds, in the order of their runs.
    pub(super) fn speeds(&self) -> Vec<f64> {
        let mut speeds: Vec<f64> = Vec::new();
        for row in &self.rows {
            if !speeds.contains(&row.speed) {
                speeds.push(row.speed);
            }
        }
        speeds
    }

    /// Returns the rows at one speed.
    pub(super) fn rows_at(&self, speed: f64) -> Vec<&ReportRow> {
        self.rows.iter().filter(|row| row.speed == speed).collect()
    }

    /// Returns true if a policy failed to decide.
    pub(super) fn has_faults(&self) -> bool {
        self.rows.iter().any(|row| row.fault.is_some())
    }

    /// Returns a sentence about the traffic and the cluster.
    pub(super) fn opening(&self) -> String {
        let facts = &self.facts;
        format!(
            "{}: {} requests, {:.2} a second, {:.0} prompt and {:.0} answer tokens in the mean; {} workers. At best {:.1} % of the blocks are cached.",
            self.trace,
            facts.requests,
            facts.per_second,
            facts.prompt.mean,
            facts.output.mean,
            self.workers,
            100.0 * facts.ideal_block_hit,
        )
    }

    /// Returns the figures with a value in some row.
    pub(super) fn figures(&self) -> Vec<&'static Figure> {
        let is_shown = |figure: &&Figure| {
            let mut summaries = self.rows.iter().flat_map(|row| &row.summaries);
            summaries.any(figure.is_shown)
        };
        FIGURES.iter().filter(is_shown).collect()
    }

    /// Returns the head of the table and its cells.
    pub(super) fn table(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let figures = self.figures();
        let names = figures.iter().map(|figure| figure.name);
        let cells = |row: &ReportRow| {
            let values = figures
                .iter()
                .map(|figure| figure.unit.format(&row.estimate(figure), figure.is_main));
            [row.policy.clone(), format!("x{}", row.speed)]
                .into_iter()
                .chain(values)
                .collect()
        };
        (
            ["policy", "speed"].into_iter().chain(names).collect(),
            self.rows.iter().map(cells).collect(),
        )
    }

    /// Returns a sentence about the seeds.
    pub(super) fn about_seeds(&self) -> String {
        match self.seeds.len() {
            1 => "One seed: the share of chance in a difference is unknown, see --seeds.".to_owned(),
            _ if !self.complete => format!(
                "Means over the seeds with their 95 % confidence intervals. {}",
                self.seeds_vary
            ),
            seeds => format!(
                "Means over {seeds} seeds with their 95 % confidence intervals. {}",
                self.seeds_vary
            ),
        }
    }

    /// Returns the caveats of the figures, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for row in &self.rows {
            let (policy, speed) = (&row.policy, row.speed);
            match &row.fault {
                Some(fault) => notes.push(format!("{policy} at x{speed} failed: {fault}")),
                None if row.fallbacks > 0 => notes.push(format!(
                    "{policy} at x{speed} left {} decisions to the fallback",
                    row.fallbacks
                )),
                None => {}
            }
        }
        if self.setting.costs_contain_fetches {
            notes.push(FETCHES_IN_COSTS.to_owned());
        }
        if !self.complete {
            notes.push(self.what_was_made());
        }
        notes
    }
}

impl SimulationReport {
    /// Returns a note if runs are missing.
    fn what_was_made(&self) -> String {
        let (made, requested, seeds) = (self.runs_made, self.runs_requested, self.seeds.len());
        let of_rows = || self.rows.iter().map(|row| row.seeds);
        let each = match (of_rows().min(), of_rows().max()) {
            (Some(least), Some(most)) if seeds > 1 && least < most => {
                format!(", with {least} to {most} of {seeds} seeds for each row")
            }
            (Some(all), _) if seeds > 1 => format!(", with {all} of {seeds} seeds for each row"),
            _ => String::new(),
        };
        format!("Stopped early: only {made} of {requested} runs were made{each}")
    }
}

impl ReportRow {
    fn of(
        contestant: usize,
        policy: String,
        speed: f64,
        mut runs: Vec<SimulationRun>,
    ) -> anyhow::Result<Self> {
        let summaries: Vec<Summary> = runs.iter().map(|run| run.summary.clone()).collect();
        let values: Vec<Value> = summaries
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()?;
        let values: Vec<&Value> = values.iter().collect();
        Ok(Self {
            contestant,
            policy,
            speed,
            seeds: runs.len(),
            means: merged(&values, &|same, estimate| match same {
                Some(same) => same.clone(),
                None => estimate.mean.into(),
            }),
            half_widths: (values.len() > 1)
                .then(|| merged(&values, &|_, estimate| estimate.half_width.into())),
            summaries,
            fallbacks: runs.iter().map(|run| run.router.fallbacks).sum(),
            fault: runs.iter().find_map(SimulationRun::fault),
            curves: runs.first_mut().and_then(|run| run.curves.take()),
        })
    }

    /// Returns the mean of a number of the breakdown over the seeds.
    pub(super) fn breakdown(&self, of: impl Fn(&Breakdown) -> f64) -> Estimate {
        Estimate::of(self.summaries.iter().map(|summary| of(&summary.breakdown)))
    }

    /// Returns a figure over the seeds.
    pub(super) fn estimate(&self, figure: &Figure) -> Estimate {
        Estimate::of(self.summaries.iter().map(figure.of))
    }
}

/// Merges several values of one shape: each number becomes its estimate, or its value if that is the same in all.
fn merged(values: &[&Value], leaf: &dyn Fn(Option<&Value>, Estimate) -> Value) -> Value {
    if let Some(lists) = merged_lists(values, leaf) {
        return lists;
    }
    let Some(Value::Object(first)) = values.first() else {
        let same = values
            .first()
            .filter(|first| values.iter().all(|value| value == *first));
        let numbers = values.iter().filter_map(|value| value.as_f64());
        return leaf(same.copied(), Estimate::of(numbers));
    };
    let of = |key: &String| {
        let inner: Vec<&Value> = values.iter().filter_map(|value| value.get(key)).collect();
        (key.clone(), merged(&inner, leaf))
    };
    first.keys().map(of).collect::<Map<_, _>>().into()
}

/// Merges lists of one length, item by item. `None` if they are no such lists.
fn merged_lists(values: &[&Value], leaf: &dyn Fn(Option<&Value>, Estimate) -> Value) -> Option<Value> {
    let lists: Vec<&Vec<Value>> = values
        .iter()
        .map(|value| value.as_array())
        .collect::<Option<_>>()?;
    let length = lists.first()?.len();
    if lists.iter().any(|list| list.len() != length) {
        return None;
    }
    let item = |at: usize| merged(&lists.iter().map(|list| &list[at]).collect::<Vec<_>>(), leaf);
    Some((0..length).map(item).collect::<Vec<_>>().into())
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.opening())?;
        if let Some(recording) = &self.recording {
            writeln!(f, "{recording}")?;
        }
        if self.comparisons.is_empty() {
            let (head, rows) = self.table();
            let columns: Vec<(&str, Side)> = head
                .into_iter()
                .enumerate()
                .map(|(at, name)| (name, if at == 0 { Side::Left } else { Side::Right }))
                .collect();
            let mut table = Table::new(&columns);
            rows.into_iter().for_each(|cells| table.row(cells));
            write!(f, "{table}")?;
        }
        for (number, comparison) in self.comparisons.iter().enumerate() {
            let space = if number == 0 { "" } else { "\n" };
            write!(f, "{space}{comparison}")?;
        }
        if self.shows_breakdown {
            for speed in self.speeds() {
                for table in breakdowns::tables(&self.rows_at(speed)) {
                    write!(f, "\nAt x{speed}: {table}")?;
                }
            }
        }
        if self.seeds.len() > 1 {
            writeln!(f, "\n{}", self.about_seeds())?;
        }
        for note in self.notes() {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}
