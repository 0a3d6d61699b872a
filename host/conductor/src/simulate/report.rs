//! What is printed of the runs.

use std::fmt;

use serde::Serialize;
use simulator::{Summary, TraceFacts};

use super::grid::Row;
use super::setting::Setting;
use crate::policy_tools::table::{Side, Table};

/// All runs, and what they had in common.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    trace: String,
    /// Of the trace as it was recorded.
    facts: TraceFacts,
    workers: usize,
    rows: Vec<RowReport>,
}

/// One run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct RowReport {
    policy: String,
    speed: f64,
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl Report {
    pub(super) fn of(setting: &Setting, rows: Vec<Row>) -> Self {
        let row = |row: Row| RowReport {
            policy: row.policy,
            speed: row.speed,
            summary: row.summary,
            fault: row.fault,
        };
        Self {
            trace: setting.trace.name.clone(),
            facts: setting.facts.clone(),
            workers: setting.spec.cluster.workers.len(),
            rows: rows.into_iter().map(row).collect(),
        }
    }

    /// Whether some policy failed to decide.
    pub(super) fn has_faults(&self) -> bool {
        self.rows.iter().any(|row| row.fault.is_some())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.facts;
        writeln!(
            f,
            "{}: {} requests, {:.2} a second, {:.0} prompt and {:.0} answer tokens in the mean; {} workers. At best {:.1} % of the blocks are cached.\n",
            self.trace,
            facts.requests,
            facts.per_second,
            facts.prompt.mean,
            facts.output.mean,
            self.workers,
            100.0 * facts.ideal_block_hit,
        )?;
        let mut table = Table::new(&COLUMNS);
        for row in &self.rows {
            table.row(cells(row));
        }
        write!(f, "{table}")?;
        for row in &self.rows {
            if let Some(fault) = &row.fault {
                writeln!(f, "\n{} at x{}: {fault}", row.policy, row.speed)?;
            }
        }
        Ok(())
    }
}

const COLUMNS: [(&str, Side); 14] = [
    ("policy", Side::Left),
    ("speed", Side::Right),
    ("TTFT s", Side::Right),
    ("p50", Side::Right),
    ("p90", Side::Right),
    ("p99", Side::Right),
    ("<= 5 s", Side::Right),
    ("in time", Side::Right),
    ("TBT ms", Side::Right),
    ("effective", Side::Right),
    ("goodput/s", Side::Right),
    ("cached", Side::Right),
    ("max/mean", Side::Right),
    ("refused", Side::Right),
];

fn cells(row: &RowReport) -> [String; COLUMNS.len()] {
    let summary = &row.summary;
    let ttft = &summary.ttft_s;
    let share = |share: f64| format!("{:.1} %", 100.0 * share);
    [
        row.policy.clone(),
        format!("x{}", row.speed),
        format!("{:.2}", ttft.mean),
        format!("{:.2}", ttft.p50),
        format!("{:.2}", ttft.p90),
        format!("{:.2}", ttft.p99),
        share(summary.within_5_s),
        share(summary.within_ttft),
        match summary.tbt_ms.count {
            0 => "-".to_owned(),
            _ => format!("{:.0}", summary.tbt_ms.mean),
        },
        share(summary.effective),
        format!("{:.2}", summary.goodput_per_s),
        share(summary.block_hit_ratio),
        format!("{:.2}", summary.imbalance),
        (summary.rejected + summary.wasted + summary.lost).to_string(),
    ]
}
