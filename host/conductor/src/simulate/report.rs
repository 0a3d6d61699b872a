//! What is printed of the runs.

use std::fmt;

use serde::Serialize;
use simulator::{RouterCounts, Summary, TraceFacts};

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
    /// Decisions that the fallback made instead, because the policy passed or failed.
    fallbacks: u64,
    /// What went wrong with the policy; its figures are then not its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl Report {
    pub(super) fn of(setting: &Setting, rows: Vec<Row>) -> Self {
        let row = |row: Row| RowReport {
            policy: row.policy,
            speed: row.speed,
            summary: row.summary,
            fallbacks: row.router.fallbacks,
            fault: row.given_up.or_else(|| fault(&row.router)),
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
            let (policy, speed, fallbacks) = (&row.policy, row.speed, row.fallbacks);
            match &row.fault {
                Some(fault) => writeln!(f, "\n{policy} at x{speed} failed: {fault}")?,
                None if fallbacks > 0 => {
                    writeln!(
                        f,
                        "\n{policy} at x{speed} left {fallbacks} decisions to the fallback"
                    )?;
                }
                None => {}
            }
        }
        Ok(())
    }
}

/// What the faults of a run's policy were.
fn fault(router: &RouterCounts) -> Option<String> {
    if let Some(first) = &router.first_fault {
        let faults: u64 = router.faults.values().sum();
        return Some(format!(
            "{faults} of {} decisions; the first: {first}",
            router.calls
        ));
    }
    let of_listeners = router.listener_faults;
    (of_listeners > 0).then(|| format!("{of_listeners} calls of its event handler or tick"))
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
        (summary.rejected + summary.lost).to_string(),
    ]
}
