//! Breakdowns of the runs at one speed, as tables.

use std::fmt;

use simulator::Breakdown;

use super::figures::Unit;
use super::report::ReportRow;
use operator_tools::table::{Side, Table};

/// Table with a row for each policy.
#[derive(Debug)]
pub(super) struct BreakdownTable {
    pub(super) title: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// Column of a table: its head, and its number with the unit.
struct BreakdownColumn<'c> {
    head: String,
    unit: Unit,
    of: Box<dyn Fn(&Breakdown) -> f64 + 'c>,
}

impl<'c> BreakdownColumn<'c> {
    fn new(head: impl Into<String>, unit: Unit, of: impl Fn(&Breakdown) -> f64 + 'c) -> Self {
        Self {
            head: head.into(),
            unit,
            of: Box::new(of),
        }
    }
}

/// Returns the tables of some rows, which have the same requests. Numbers are means over the seeds.
pub(super) fn tables(rows: &[&ReportRow]) -> Vec<BreakdownTable> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let mut tables = vec![
        table(
            "mean seconds to first token by prompt length, a tenth of the requests each, up to so many tokens",
            rows,
            lengths(first, |breakdown, at| breakdown.by_length[at].times.ttft_s),
        ),
        table(
            "99th percentile of the seconds to first token by prompt length",
            rows,
            lengths(first, |breakdown, at| breakdown.by_length[at].times.p99_s),
        ),
        table(
            "mean seconds to first token by turn of the session",
            rows,
            turns(first),
        ),
        table(
            "share of all requests with a first token within so many seconds",
            rows,
            attainment(first),
        ),
    ];
    let is_known = |of: fn(&Breakdown) -> bool| {
        let mut summaries = rows.iter().flat_map(|row| &row.summaries);
        summaries.any(|summary| of(&summary.breakdown))
    };
    if is_known(|breakdown| breakdown.refusals.sum() > 0.0) {
        tables.push(table(
            "share of all requests refused, by reason",
            rows,
            refusals(),
        ));
    }
    if is_known(|breakdown| breakdown.fairness.tenants > 1) {
        tables.push(table("fairness over tenants", rows, fairness()));
    }
    tables
}

fn table(title: &str, rows: &[&ReportRow], columns: Vec<BreakdownColumn<'_>>) -> BreakdownTable {
    let cells = |row: &&ReportRow| {
        let numbers = columns
            .iter()
            .map(|column| column.unit.format(&row.breakdown(&column.of), false));
        [row.policy.clone()].into_iter().chain(numbers).collect()
    };
    BreakdownTable {
        title: title.to_owned(),
        rows: rows.iter().map(cells).collect(),
        head: ["policy".to_owned()]
            .into_iter()
            .chain(columns.iter().map(|column| column.head.clone()))
            .collect(),
    }
}

fn lengths<'c>(
    first: &ReportRow,
    of: impl Fn(&Breakdown, usize) -> f64 + Copy + 'c,
) -> Vec<BreakdownColumn<'c>> {
    let column = |at: usize| {
        let tokens = first.breakdown(|breakdown| breakdown.by_length[at].up_to_tokens.into());
        let head = Unit::Whole.format(&tokens, false);
        BreakdownColumn::new(head, Unit::Ratio, move |breakdown| of(breakdown, at))
    };
    (0..count(first, |breakdown| breakdown.by_length.len()))
        .map(column)
        .collect()
}

fn turns(first: &ReportRow) -> Vec<BreakdownColumn<'static>> {
    let groups = count(first, |breakdown| breakdown.by_turn.len());
    let column = |at: usize| {
        let later = if at + 1 == groups { "+" } else { "" };
        BreakdownColumn::new(format!("{}{later}", at + 1), Unit::Ratio, move |breakdown| {
            breakdown.by_turn[at].times.ttft_s
        })
    };
    (0..groups).map(column).collect()
}

fn attainment(first: &ReportRow) -> Vec<BreakdownColumn<'static>> {
    let points = first
        .summaries
        .first()
        .map(|summary| &summary.breakdown.attainment);
    let points = points.into_iter().flatten().enumerate();
    let column = |(at, point): (usize, &simulator::AttainmentPoint)| {
        BreakdownColumn::new(point.within_s.to_string(), Unit::Share, move |breakdown| {
            breakdown.attainment[at].share
        })
    };
    points.map(column).collect()
}

fn refusals() -> Vec<BreakdownColumn<'static>> {
    let share = |head, of: fn(&Breakdown) -> f64| BreakdownColumn::new(head, Unit::Share, of);
    vec![
        share("policy", |breakdown| breakdown.refusals.policy),
        share("queue full", |breakdown| breakdown.refusals.queue_full),
        share("queue timeout", |breakdown| breakdown.refusals.queue_timeout),
        share("no worker", |breakdown| breakdown.refusals.no_worker),
        share("decode worker", |breakdown| breakdown.refusals.decode_worker),
        share("lost", |breakdown| breakdown.refusals.lost),
        share("all", |breakdown| breakdown.refusals.sum()),
    ]
}

fn fairness() -> Vec<BreakdownColumn<'static>> {
    let column = |head, unit, of: fn(&Breakdown) -> f64| BreakdownColumn::new(head, unit, of);
    vec![
        column("tenants", Unit::Count, |breakdown| {
            breakdown.fairness.tenants as f64
        }),
        column("Jain's index", Unit::Fine, |breakdown| breakdown.fairness.jain),
        column("slowest, mean s", Unit::Ratio, |breakdown| {
            breakdown.fairness.slowest_s
        }),
        column("fastest, mean s", Unit::Ratio, |breakdown| {
            breakdown.fairness.fastest_s
        }),
        column("worst in time", Unit::Share, |breakdown| {
            breakdown.fairness.worst_in_time
        }),
    ]
}

/// Returns the number of groups, which is the same in all runs.
fn count(row: &ReportRow, of: fn(&Breakdown) -> usize) -> usize {
    row.summaries.first().map_or(0, |summary| of(&summary.breakdown))
}

impl fmt::Display for BreakdownTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let columns: Vec<(&str, Side)> = self
            .head
            .iter()
            .enumerate()
            .map(|(at, name)| (name.as_str(), if at == 0 { Side::Left } else { Side::Right }))
            .collect();
        let mut table = Table::new(&columns);
        for cells in &self.rows {
            table.row(cells.iter().cloned());
        }
        write!(f, "{table}")
    }
}
