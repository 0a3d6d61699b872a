//! Table of the rounds, and the verdict.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::Counts;

/// Time in which loads must be right again after a fault.
const CONVERGED: Duration = Duration::from_secs(1);
/// Time in which no load of a dead router may be left.
const FREED: Duration = Duration::from_secs(10);
/// Margin of a look at three pages.
const LOOK: Duration = Duration::from_millis(250);

/// Result of a round.
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    pub(crate) round: usize,
    /// Time until every router knew all requests.
    pub(crate) converged: Option<Duration>,
    /// Time until no router knew of any.
    pub(crate) freed: Option<Duration>,
    /// Routers that obeyed a rollback, and decisions that the store accepted for it.
    pub(crate) rollback: Option<(usize, u64)>,
}

/// All rounds.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

impl Row {
    /// Returns whether it is as it must be.
    fn holds(&self) -> bool {
        let within = |time: Option<Duration>, most: Duration| time.is_some_and(|time| time <= most + LOOK);
        let rollback = self
            .rollback
            .is_none_or(|(obeyed, decided)| obeyed == 3 && decided == 1);
        within(self.converged, CONVERGED) && within(self.freed, FREED) && rollback
    }

    pub(crate) fn line(&self) -> String {
        let time = |time: Option<Duration>| {
            time.map_or("never".to_owned(), |time| format!("{} ms", time.as_millis()))
        };
        let rollback = self.rollback.map_or(String::new(), |(obeyed, decided)| {
            format!("decided {decided}, obeyed by {obeyed}")
        });
        format!(
            "| {:>3} | {:<24} | {:>9} | {:>9} | {:<24} | {} |",
            self.round,
            self.fault,
            time(self.converged),
            time(self.freed),
            rollback,
            if self.holds() { "ok" } else { "VIOLATED" }
        )
    }
}

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    pub(crate) fn report(&self, counts: &Counts) -> String {
        let mut text = "| round | fault | loads right after | none left after | rollback | |\n|---|---|---|---|---|---|\n".to_owned();
        for row in &self.0 {
            let _ = writeln!(text, "{}", row.line());
        }
        let Counts {
            answered,
            cut,
            failed,
        } = counts;
        let _ = write!(
            text,
            "\n{answered} requests answered, {cut} cut by a killed router, {failed} failed: {}",
            if *failed == 0 { "ok" } else { "VIOLATED" }
        );
        text
    }

    /// Returns whether all rounds are as they must be, and no request failed.
    pub(crate) fn holds(&self, counts: &Counts) -> bool {
        counts.failed == 0 && counts.answered > 0 && self.0.iter().all(Row::holds)
    }
}
