//! Report on a replay.

use std::collections::BTreeMap;
use std::fmt;

use policy_runtime::PolicySettings;
use serde::Serialize;

use super::log::Log;
use super::replay_same::RepeatReport;
use super::replay_with::ComparisonReport;
use super::time_outs::MOST_TIMED_OUT;
use crate::Exit;
use crate::policy::component::ComponentFile;

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ReplayReport {
    policy: String,
    sha256: String,
    params: String,
    #[serde(flatten)]
    log: LogTotals,
    /// Decisions of this component with these parameters.
    pub(super) again: RepeatReport,
    /// Decisions of pipelines with it as a scorer.
    pub(super) as_scorer: RepeatReport,
    /// Decisions of other policies.
    pub(super) other: ComparisonReport,
    /// Set if the replay ended before the log did, since too many decisions ran out of time.
    pub(super) ended_early: bool,
    /// Times of one decision, without reading the log.
    time: Option<Times>,
}

/// Numbers of lines of a log, as far as it was read.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct LogTotals {
    decisions: u64,
    outcomes: u64,
    /// Lines that are none of a log's.
    unreadable_lines: u64,
}

/// Times in nanoseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Times {
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
}

impl ReplayReport {
    pub(super) fn new(subject: &ComponentFile, settings: &PolicySettings) -> Self {
        Self {
            policy: subject.label.clone(),
            sha256: subject.sha256(),
            params: settings.params_json.clone(),
            log: LogTotals::default(),
            again: RepeatReport::default(),
            as_scorer: RepeatReport::default(),
            other: ComparisonReport::default(),
            ended_early: false,
            time: None,
        }
    }

    /// Adds the totals of a log, as far as it was read.
    pub(super) fn read(&mut self, log: &Log<'_>) {
        self.log = LogTotals {
            // The one that shows that the log goes on was read only.
            decisions: log.decisions - u64::from(self.ended_early),
            outcomes: log.outcomes,
            unreadable_lines: log.unreadable,
        };
        let mut times = [
            &*self.again.nanoseconds,
            &*self.as_scorer.nanoseconds,
            &*self.other.nanoseconds,
        ]
        .concat();
        times.sort_unstable();
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        let sum: u64 = times.iter().sum();
        self.time = at(0.5).zip(at(0.99)).map(|(p50_ns, p99_ns)| Times {
            mean_ns: sum / times.len().max(1) as u64,
            p50_ns,
            p99_ns,
        });
    }

    /// Returns true if every repeatable decision of its own had the same result, at least one decision could be
    /// made, and the log was read to its end.
    pub(super) fn exit(&self) -> Exit {
        let differ = |again: &RepeatReport| again.different + again.diverged > 0;
        if differ(&self.again) || differ(&self.as_scorer) || self.time.is_none() || self.ended_early {
            Exit::Failure
        } else {
            Exit::Success
        }
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sha256 = self.sha256.get(..12).unwrap_or(&self.sha256);
        writeln!(f, "{}@{sha256} with params {}", self.policy, self.params)?;
        let LogTotals {
            decisions,
            outcomes,
            unreadable_lines,
        } = self.log;
        write!(f, "log: {decisions} decisions, {outcomes} outcomes")?;
        if unreadable_lines > 0 {
            write!(f, ", {unreadable_lines} lines that cannot be read")?;
        }
        writeln!(f)?;
        if self.ended_early {
            writeln!(
                f,
                "ended early: {MOST_TIMED_OUT} decisions in a row ran out of time; `conductor policy check` looks for the cause"
            )?;
        }
        if self.again.decisions > 0 {
            writeln!(f, "\nits own decisions: {}", self.again.decisions)?;
            self.again.fmt(f)?;
        }
        if self.as_scorer.decisions > 0 {
            let decisions = self.as_scorer.decisions;
            writeln!(f, "\ndecisions of pipelines that had it as a scorer: {decisions}")?;
            self.as_scorer.fmt(f)?;
        }
        if self.other.decisions > 0 {
            self.other.fmt(f)?;
        }
        match &self.time {
            Some(Times {
                mean_ns,
                p50_ns,
                p99_ns,
            }) => writeln!(f, "\na decision takes {mean_ns} ns (p50 {p50_ns}, p99 {p99_ns})"),
            None => writeln!(f, "\nnothing of the log could be decided"),
        }
    }
}

impl fmt::Display for RepeatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeatable = self.decisions - self.not_repeatable;
        let share = percent(self.identical, repeatable);
        writeln!(f, "  identical bit for bit  {} ({share})", self.identical)?;
        writeln!(f, "  different              {}", self.different)?;
        writeln!(f, "  other queries          {}", self.diverged)?;
        writeln!(f, "  cannot be repeated     {}", self.not_repeatable)?;
        if let Some(first) = &self.first_difference {
            let super::replay_same::Difference {
                request,
                seq,
                attempt,
                ..
            } = first;
            writeln!(
                f,
                "  the first difference: request {request} (number {seq}, attempt {attempt})"
            )?;
            writeln!(f, "    recorded  {}", first.recorded)?;
            writeln!(f, "    replayed  {}", first.replayed)?;
        }
        Ok(())
    }
}

impl fmt::Display for ComparisonReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = counted(&self.recorded_policies);
        writeln!(f, "\ndecisions of others: {} ({policies})", self.decisions)?;
        writeln!(f, "  compared        {}", self.compared)?;
        let share = percent(self.agreed, self.compared);
        writeln!(f, "  same choice     {} ({share})", self.agreed)?;
        writeln!(
            f,
            "  matched tokens  {} with its choices, {} with the recorded ones",
            self.matched_replayed, self.matched_recorded
        )?;
        for (what, count) in [
            ("held", self.held),
            ("refused", self.rejected),
            ("passed", self.passed),
            ("nonsense", self.invalid),
            ("nothing recorded to compare with", self.nothing_recorded),
        ] {
            if count > 0 {
                writeln!(f, "  {what}: {count}")?;
            }
        }
        if !self.faults.is_empty() {
            writeln!(f, "  faults: {}", counted(&self.faults))?;
        }
        for (why, count) in &self.not_comparable {
            writeln!(f, "  not comparable: {count}, {why}")?;
        }
        if self
            .not_comparable
            .keys()
            .any(|why| why.starts_with("not recorded"))
        {
            writeln!(
                f,
                "  (record with `columns = \"all\"` in `[record]` to have every column)"
            )?;
        }
        Ok(())
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(what, count)| format!("{count} {what}"));
    counts.collect::<Vec<_>>().join(", ")
}
