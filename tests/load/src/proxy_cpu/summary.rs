//! Medians of the tries, as markdown to read and as JSON to keep.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::processor::machine;
use super::{Life, Notes, Scenario, Setting, Subject, System, Try};
use crate::statistics::median;

/// A try during which others used more cores than this is not clean.
pub(crate) const CLEAN: f64 = 0.5;

/// The medians of one system under one load.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    system: &'static str,
    workers: u16,
    cost: f64,
    /// Against nginx in the same run and under the same load.
    to_nginx: Option<f64>,
    requests_per_second: f64,
    p50: f64,
    p99: f64,
    cores: f64,
    others: f64,
    /// Summed over all tries.
    errors: u64,
    tries: usize,
    clean: usize,
    /// Some try lacks the time of ended threads.
    doubtful: bool,
}

/// The result of a run.
pub(crate) struct Summary {
    setting: String,
    tables: Vec<(Scenario, Vec<Cell>)>,
    noise: (f64, f64, f64),
    notes: Notes,
}

impl Summary {
    pub(crate) fn new(options: &Setting, scenarios: &[Scenario], tries: &[Try], notes: Notes) -> Self {
        let setting = format!(
            "{}. {} connections, {} backends, {} round(s) of {} s after {} s of warm-up; generator and backends on \
             core {}, the system on core {}.",
            machine(),
            options.connections,
            options.backends,
            options.rounds,
            options.window_s,
            options.warm_up_s,
            options.load_core,
            cores(&options.router_core),
        );
        let others: Vec<_> = tries.iter().map(|done| done.others).collect();
        let stolen: Vec<_> = tries.iter().map(|done| done.stolen).collect();
        let noise = (
            median(&others).unwrap_or(0.0),
            others.iter().copied().fold(0.0, f64::max),
            median(&stolen).unwrap_or(0.0),
        );
        let tables = scenarios
            .iter()
            .map(|scenario| (*scenario, cells(*scenario, tries)))
            .collect();
        Self {
            setting,
            tables,
            noise,
            notes,
        }
    }

    /// Returns the failures of installed systems.
    pub(crate) fn failed(&self) -> &[String] {
        &self.notes.failed
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{}\n", self.setting);
        let (others, worst, stolen) = self.noise;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "Noise: others used {others:.2} cores (median; {worst:.2} at worst), {stolen:.2} were stolen. `~`: medians \
             of all tries, because fewer than two were clean (others at most {CLEAN} cores). `?`: threads ended within \
             the window, their time is missing. The CPU of `direct` is the backends' own."
        );
        for (scenario, cells) in &self.tables {
            let _ = writeln!(text, "\n{}", table(*scenario, cells));
        }
        for note in self.notes.skipped.iter().chain(&self.notes.failed) {
            let _ = write!(text, "\nNot measured: {note}\n");
        }
        text
    }

    pub(crate) fn to_json(&self, tries: &[Try], lives: &[Life]) -> Value {
        let medians = self
            .tables
            .iter()
            .flat_map(|(scenario, cells)| cells.iter().map(|cell| cell.to_json(*scenario)));
        let (others, worst, stolen) = self.noise;
        json!({
            "setting": self.setting,
            "noise": { "other_cores_median": others, "other_cores_worst": worst, "stolen_cores_median": stolen },
            "medians": medians.collect::<Vec<_>>(),
            "tries": tries.iter().map(Try::to_json).collect::<Vec<_>>(),
            "starts": lives.iter().map(|life| life.to_json()).collect::<Vec<_>>(),
            "not_measured": self.notes.skipped.iter().chain(&self.notes.failed).collect::<Vec<_>>(),
        })
    }
}

fn cells(scenario: Scenario, tries: &[Try]) -> Vec<Cell> {
    let mut subjects: Vec<Subject> = Vec::new();
    for system in System::ALL {
        for done in tries.iter().filter(|done| done.subject.system == system) {
            if !subjects.contains(&done.subject) {
                subjects.push(done.subject);
            }
        }
    }
    let of = |subject: &Subject| {
        let own = tries
            .iter()
            .filter(|done| done.subject == *subject && done.scenario == scenario);
        cell(*subject, &own.collect::<Vec<_>>())
    };
    let mut cells: Vec<_> = subjects.iter().filter_map(of).collect();
    let nginx = cells
        .iter()
        .find(|cell| cell.system == System::Nginx.name())
        .map(|cell| cell.cost);
    for cell in &mut cells {
        cell.to_nginx = nginx.map(|nginx| cell.cost / nginx);
    }
    cells
}

fn cell(subject: Subject, tries: &[&Try]) -> Option<Cell> {
    let clean: Vec<_> = tries
        .iter()
        .copied()
        .filter(|done| done.others <= CLEAN)
        .collect();
    let used = if clean.len() >= 2 { &clean[..] } else { tries };
    let of = |figure: fn(&Try) -> f64| median(&used.iter().map(|done| figure(done)).collect::<Vec<_>>());
    Some(Cell {
        system: subject.system.name(),
        workers: subject.workers,
        cost: of(|done| done.cost)?,
        to_nginx: None,
        requests_per_second: of(|done| done.report.rate())?,
        p50: of(|done| done.latency(0.5))?,
        p99: of(|done| done.latency(0.99))?,
        cores: of(|done| done.cores)?,
        others: of(|done| done.others)?,
        errors: tries.iter().map(|done| done.report.errors.total()).sum(),
        tries: tries.len(),
        clean: clean.len(),
        doubtful: used.iter().any(|done| done.doubtful),
    })
}

impl Cell {
    fn to_json(&self, scenario: Scenario) -> Value {
        json!({
            "system": self.system,
            "workers": self.workers,
            "scenario": scenario.title(),
            "unit": scenario.unit(),
            "cpu_us_per_unit": self.cost,
            "to_nginx": self.to_nginx,
            "requests_per_second": self.requests_per_second,
            "latency_p50_us": self.p50,
            "latency_p99_us": self.p99,
            "system_cores": self.cores,
            "other_cores": self.others,
            "errors": self.errors,
            "tries": self.tries,
            "clean_tries": self.clean,
            "lacks_ended_threads": self.doubtful,
        })
    }
}

fn table(scenario: Scenario, cells: &[Cell]) -> String {
    let (title, unit) = (scenario.title(), scenario.unit());
    let mut text = format!(
        "| {title} | CPU us/{unit} | x nginx | req/s | p50 us | p99 us | errors | cores | others | clean tries |\n"
    );
    text += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for cell in cells {
        let marks = [(cell.clean < 2, "~"), (cell.doubtful, "?")];
        let marks: String = marks
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, mark)| mark)
            .collect();
        let workers = match cell.workers {
            4 => String::new(),
            workers => format!(", {workers} workers"),
        };
        let to_nginx = cell
            .to_nginx
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {}{workers} | {:.1}{marks} | {to_nginx} | {:.0} | {:.0} | {:.0} | {} | {:.2} | {:.2} | {} of {} |",
            cell.system,
            cell.cost,
            cell.requests_per_second,
            cell.p50,
            cell.p99,
            cell.errors,
            cell.cores,
            cell.others,
            cell.clean,
            cell.tries,
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the numbers of cores as a text.
fn cores(cores: &[usize]) -> String {
    cores
        .iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(system: System, cost: f64, others: f64) -> Try {
        Try {
            others,
            ..Try::undisturbed(system, Scenario::Kib1, cost)
        }
    }

    /// Checks the rows as `name cost ratio`.
    #[track_caller]
    fn check(tries: &[Try], expected: &[&str]) {
        let text = table(Scenario::Kib1, &cells(Scenario::Kib1, tries));
        let rows = text
            .lines()
            .skip(2)
            .map(|row| row.split(" | ").take(3).collect::<Vec<_>>().join(" "));
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn costs_are_medians_over_clean_tries_and_relative_to_nginx() {
        let tries = [
            done(System::RoundRobin, 30.0, 0.1),
            done(System::RoundRobin, 20.0, 0.2),
            done(System::RoundRobin, 90.0, 0.9),
            done(System::Nginx, 10.0, 0.0),
            done(System::Nginx, 10.0, 0.0),
        ];
        check(
            &tries,
            &["| nginx 10.0 1.00", "| conductor round-robin 25.0 2.50"],
        );
    }

    #[test]
    fn too_few_clean_tries_are_marked() {
        let tries = [
            done(System::Direct, 1.0, 0.1),
            done(System::Direct, 2.0, 0.9),
            done(System::Direct, 3.0, 0.9),
        ];
        check(&tries, &["| direct 2.0~ -"]);
    }

    #[test]
    fn nothing_measured_is_an_empty_table() {
        check(&[], &[]);
    }
}
