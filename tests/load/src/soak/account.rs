//! Account of requests: by the client's view, and by the faults of the engines at the time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::client::Outcome;
use super::trouble::Record;
use crate::statistics::Histogram;

pub(super) struct Account {
    record: Arc<Record>,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    complete: u64,
    not_sent: u64,
    hung: u64,
    /// Failures by the client's view: their number, the number of those while every engine was well, and the fault
    /// otherwise.
    failed: BTreeMap<String, Failed>,
    latency: Histogram,
}

#[derive(Default)]
struct Failed {
    count: u64,
    unexplained: u64,
    meanwhile: BTreeMap<String, u64>,
}

impl Account {
    pub(super) fn new(record: Arc<Record>) -> Self {
        Self {
            record,
            books: Mutex::default(),
        }
    }

    pub(super) fn enter(&self, outcome: &Outcome, due: Instant) {
        let kind = match outcome {
            Outcome::Complete => {
                let mut books = self.books();
                books.complete += 1;
                books.latency.record(due.elapsed());
                return;
            }
            Outcome::Reported(what) => what.clone(),
            Outcome::Torn(what) => (*what).to_owned(),
            Outcome::Hung => "hung".to_owned(),
        };
        let troubles = self.record.since(due);
        let mut books = self.books();
        books.hung += u64::from(*outcome == Outcome::Hung);
        let failed = books.failed.entry(kind).or_default();
        failed.count += 1;
        failed.unexplained += u64::from(troubles.is_empty());
        for trouble in troubles {
            *failed.meanwhile.entry(trouble.to_string()).or_default() += 1;
        }
    }

    /// Counts a request that was not sent, since the client had too many under way.
    pub(super) fn not_sent(&self) {
        self.books().not_sent += 1;
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn in_short(&self) -> String {
        let books = self.books();
        let failed: u64 = books.failed.values().map(|failed| failed.count).sum();
        format!(
            "{} complete, {failed} failed, {} not sent",
            books.complete, books.not_sent
        )
    }

    /// Returns the number of complete answers.
    pub(super) fn completed(&self) -> u64 {
        self.books().complete
    }

    /// Returns the number of requests that failed or could not be sent.
    pub(super) fn failures(&self) -> u64 {
        let books = self.books();
        books.not_sent + books.failed.values().map(|failed| failed.count).sum::<u64>()
    }

    /// Returns the latency from the due time; NaN without answers.
    pub(super) fn millis(&self, quantile: f64) -> f64 {
        self.books().latency.micros(quantile).unwrap_or(f64::NAN) / 1e3
    }

    /// Returns `true` if nothing hung, nothing failed without a reason, and there was an answer.
    pub(super) fn is_good(&self) -> bool {
        let books = self.books();
        let explained = books.failed.values().all(|failed| failed.unexplained == 0);
        books.complete > 0 && books.hung == 0 && books.not_sent == 0 && explained
    }

    pub(super) fn to_markdown(&self) -> String {
        let books = self.books();
        let failed: u64 = books.failed.values().map(|failed| failed.count).sum();
        let all = books.complete + failed;
        let share = |count: u64| 100.0 * count as f64 / all.max(1) as f64;
        let millis = |quantile| books.latency.micros(quantile).unwrap_or(f64::NAN) / 1e3;
        let mut text = format!(
            "{all} requests: {} complete, {failed} failed ({:.3} %), {} not sent. Complete ones took {:.0} ms (p50), {:.0} ms (p99) from \
             when they were due.\n",
            books.complete,
            share(failed),
            books.not_sent,
            millis(0.5),
            millis(0.99),
        );
        if books.failed.is_empty() {
            return text;
        }
        text += "\n| what the client saw | requests | share | with every engine well | engines meanwhile |\n";
        text += "| --- | ---: | ---: | ---: | --- |\n";
        for (kind, failed) in &books.failed {
            let meanwhile: Vec<_> = failed
                .meanwhile
                .iter()
                .map(|(trouble, count)| format!("{trouble} {count}"))
                .collect();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {kind} | {} | {:.3} % | {} | {} |",
                failed.count,
                share(failed.count),
                failed.unexplained,
                meanwhile.join(", ")
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_while_every_engine_is_well_is_not_explained() {
        let account = Account::new(Arc::default());
        account.enter(&Outcome::Complete, Instant::now());
        assert!(account.is_good());
        account.enter(&Outcome::Torn("stream torn"), Instant::now());
        assert!(!account.is_good());
        let text = account.to_markdown();
        assert!(text.contains("| stream torn | 1 | 50.000 % | 1 |  |"), "{text}");
    }
}
