//! Figures, and the table they are printed in.

use std::time::{Duration, Instant};

use crate::machine::Machine;

/// One measured thing of one subject.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
    /// Target in that unit. Empty if there is none.
    pub(crate) aim: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Micros,
    Nanos,
    /// Nanoseconds a block, printed as million blocks a second too.
    NanosPerBlock,
    Bytes,
    Times,
}

/// Durations of the same thing done many times.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn time<T>(&mut self, machine: &Machine, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.push(start.elapsed(), machine);
        done
    }

    fn push(&mut self, took: Duration, machine: &Machine) {
        self.0.push((took.as_nanos() as f64 - machine.clock).max(0.0));
    }

    /// Returns a quantile in nanoseconds; `part` is from 0 to 1.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// Returns [`Samples::quantile`] in microseconds.
    pub(crate) fn micros(&self, part: f64) -> f64 {
        self.quantile(part) / 1000.0
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.total() / self.0.len() as f64
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Prints one row a figure, one column a subject. The last two columns give the first subject's time as dependent loads
/// and block hashes of this machine.
pub(crate) fn print(machine: &Machine, subjects: &[(&str, Vec<Figure>)]) {
    let Some((_, first)) = subjects.first() else {
        return;
    };
    println!(
        "machine: dependent load in 512 MiB {:.0} ns, XXH3-64 of one block's 64 bytes {:.1} ns, clock {:.0} ns (one reading taken off)\n",
        machine.load, machine.hash, machine.clock
    );
    let names: Vec<String> = subjects
        .iter()
        .map(|(name, _)| format!(" {name:>16} |"))
        .collect();
    println!(
        "| {:<62} |{} {:>12} | {:>7} | {:>7} |",
        "figure",
        names.concat(),
        "aim",
        "loads",
        "hashes"
    );
    println!(
        "|:{:-<62}-|{}-{:->12}:|-{:->7}:|-{:->7}:|",
        "",
        "-----------------:|".repeat(subjects.len()),
        "",
        "",
        ""
    );
    for figure in first {
        let of = |figures: &[Figure]| {
            let found = figures.iter().find(|other| other.name == figure.name);
            found.map_or_else(String::new, |found| text(found.value, found.unit))
        };
        let values: Vec<String> = subjects
            .iter()
            .map(|(_, figures)| format!(" {:>16} |", of(figures)))
            .collect();
        let nanos = match figure.unit {
            Unit::Micros => Some(figure.value * 1000.0),
            Unit::Nanos | Unit::NanosPerBlock => Some(figure.value),
            Unit::Bytes | Unit::Times => None,
        };
        let in_terms = |of: f64| nanos.map_or_else(String::new, |nanos| format!("{:.2}", nanos / of));
        println!(
            "| {:<62} |{} {:>12} | {:>7} | {:>7} |",
            figure.name,
            values.concat(),
            figure.aim,
            in_terms(machine.load),
            in_terms(machine.hash)
        );
    }
}

fn text(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Micros => format!("{value:.1} us"),
        Unit::Nanos => format!("{value:.0} ns"),
        Unit::NanosPerBlock if value > 0.0 => format!("{value:.1} ns {:.1}M/s", 1000.0 / value),
        Unit::NanosPerBlock => format!("{value:.1} ns"),
        Unit::Bytes => format!("{value:.2} B"),
        Unit::Times => format!("{value:.2}x"),
    }
}
