//! The rows of the table: nginx, the best of the peers that choose by turns, ours, and what we aim at.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::proxy_cpu::{CLEAN, Life, Scenario, Subject, System, Try};
use crate::statistics::median;

const MEBI: f64 = 1024.0 * 1024.0;

/// A figure as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    value: f64,
    /// Set for fewer than two clean tries.
    noisy: bool,
}

/// Target of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Aim {
    AtMost(f64),
    AtLeast(f64),
    None,
}

/// One line of the table.
#[derive(Debug, Clone)]
struct Row {
    figure: String,
    nginx: Option<Measured>,
    peer: Option<(System, Measured)>,
    ours: Option<Measured>,
    aim: Aim,
    digits: usize,
}

/// Measurements, as a source of figures.
pub(super) struct Figures<'a> {
    tries: &'a [Try],
    lives: &'a [Life],
    ours: System,
    workers: u16,
}

impl<'a> Figures<'a> {
    pub(super) fn new(tries: &'a [Try], lives: &'a [Life], ours: System, workers: u16) -> Self {
        Self {
            tries,
            lives,
            ours,
            workers,
        }
    }

    pub(super) fn to_markdown(&self, fleets: &[u16]) -> String {
        let mut text = format!("Ours: {}, {} workers.\n\n", self.ours.name(), self.workers);
        text += "| figure | nginx | best LLM router (round robin) | ours | aim | ours / nginx | met |\n";
        text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
        for row in self.rows(fleets) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", row.to_markdown());
        }
        text.truncate(text.trim_end().len());
        text
    }

    pub(super) fn to_json(&self, fleets: &[u16]) -> Value {
        self.rows(fleets).iter().map(Row::to_json).collect()
    }

    fn rows(&self, fleets: &[u16]) -> Vec<Row> {
        use Aim::{AtLeast, AtMost};
        use Scenario::{Burst, Kib1, Kib32, One, Paced, Sse, Turn32};
        let cost = |done: &Try| done.cost;
        let p50 = |done: &Try| done.latency(0.5);
        let first = |done: &Try| done.latency(0.5) / 1e3;
        let per_core = |done: &Try| done.report.rate() / done.cores;
        let mut rows = vec![self.row("CPU per 1 KiB chat request, us", Kib1, AtMost(25.0), cost)];
        for workers in fleets {
            let of = |system| self.tried(system, *workers, Kib1, &cost);
            rows.push(Row {
                figure: format!("the same with {workers} workers, us"),
                nginx: of(System::Nginx),
                peer: None,
                ours: of(self.ours),
                aim: AtMost(25.0),
                digits: 1,
            });
        }
        rows.extend([
            self.row(
                "CPU per 32 KiB request, conversation known, us",
                Turn32,
                AtMost(45.0),
                cost,
            ),
            self.row(
                "CPU per 32 KiB request, a quarter new, us",
                Kib32,
                Aim::None,
                cost,
            ),
            self.row("CPU per SSE token at 10 ms, us", Sse, AtMost(11.0), cost),
            self.added("added latency p50, one connection, us", One, AtMost(45.0), p50),
            self.added(
                "added latency p50, 500 rps open loop, us",
                Paced,
                AtMost(80.0),
                p50,
            ),
            Row {
                digits: 2,
                ..self.added(
                    "added TTFT p50, bursts of 64 streams, ms",
                    Burst,
                    AtMost(0.6),
                    first,
                )
            },
            Row {
                digits: 0,
                ..self.row("requests/s per core, 1 KiB", Kib1, AtLeast(40_000.0), per_core)
            },
        ]);
        let mebibytes = |life: &Life| life.resident as f64 / MEBI;
        rows.push(self.life("RSS idle, MiB", AtMost(30.0), mebibytes));
        rows.push(self.held());
        let millis = |life: &Life| life.start.as_secs_f64() * 1e3;
        rows.push(self.life("start to first answer, ms", AtMost(50.0), millis));
        let millis = |life: &Life| life.exit.as_secs_f64() * 1e3;
        rows.push(self.life("SIGTERM to exit when idle, ms", AtMost(50.0), millis));
        rows.push(self.logging());
        rows
    }

    /// Returns the row of one figure for all systems.
    fn row(&self, figure: &str, scenario: Scenario, aim: Aim, of: impl Fn(&Try) -> f64) -> Row {
        self.compare(figure, aim, |system| {
            self.tried(system, self.workers, scenario, &of)
        })
    }

    /// Returns the row of one figure minus its value without a proxy.
    fn added(&self, figure: &str, scenario: Scenario, aim: Aim, of: impl Fn(&Try) -> f64) -> Row {
        let direct = self.tried(System::Direct, self.workers, scenario, &of);
        self.compare(figure, aim, |system| {
            let own = self.tried(system, self.workers, scenario, &of)?;
            Some(Measured {
                value: own.value - direct?.value,
                noisy: own.noisy || direct?.noisy,
            })
        })
    }

    fn life(&self, figure: &str, aim: Aim, of: impl Fn(&Life) -> f64) -> Row {
        self.compare(figure, aim, |system| {
            let subject = Subject {
                system,
                workers: self.workers,
            };
            let own = self.lives.iter().filter(|life| life.subject == subject);
            median(&own.map(&of).collect::<Vec<_>>()).map(|value| Measured { value, noisy: false })
        })
    }

    fn held(&self) -> Row {
        let streams = |done: &Try| done.report.open_streams as f64;
        let held = self.tried(self.ours, self.workers, Scenario::Held, &streams);
        let figure = format!(
            "RSS at {:.0} open streams, MiB",
            held.map_or(0.0, |held| held.value)
        );
        self.row(&figure, Scenario::Held, Aim::AtMost(300.0), |done| {
            done.resident as f64 / MEBI
        })
    }

    fn logging(&self) -> Row {
        let cost = |system| self.tried(system, self.workers, Scenario::Kib1, &|done: &Try| done.cost);
        let ratio = |with, without| {
            let (with, without): (Measured, Measured) = (cost(with)?, cost(without)?);
            Some(Measured {
                value: with.value / without.value,
                noisy: with.noisy || without.noisy,
            })
        };
        let peer = ratio(System::VllmRrInfo, System::VllmRr);
        Row {
            figure: "CPU with info logging (the default) against warn".to_owned(),
            nginx: None,
            peer: peer.map(|ratio| (System::VllmRr, ratio)),
            ours: ratio(System::CacheAwareLive, System::CacheAwareLiveWarn),
            aim: Aim::AtMost(1.1),
            digits: 2,
        }
    }

    fn compare(&self, figure: &str, aim: Aim, of: impl Fn(System) -> Option<Measured>) -> Row {
        let peers = System::PEERS
            .into_iter()
            .filter_map(|peer| Some((peer, of(peer)?)));
        let by_value = |(_, a): &(System, Measured), (_, b): &(System, Measured)| a.value.total_cmp(&b.value);
        Row {
            figure: figure.to_owned(),
            nginx: of(System::Nginx),
            peer: if matches!(aim, Aim::AtLeast(_)) {
                peers.max_by(by_value)
            } else {
                peers.min_by(by_value)
            },
            ours: of(self.ours),
            aim,
            digits: 1,
        }
    }

    /// Returns the median over clean tries, or where there are fewer than two, over all.
    fn tried(
        &self,
        system: System,
        workers: u16,
        scenario: Scenario,
        of: &dyn Fn(&Try) -> f64,
    ) -> Option<Measured> {
        let subject = Subject { system, workers };
        let own: Vec<_> = self
            .tries
            .iter()
            .filter(|done| done.subject == subject && done.scenario == scenario)
            .collect();
        let clean: Vec<_> = own.iter().filter(|done| done.others <= CLEAN).copied().collect();
        let noisy = clean.len() < 2;
        let used = if noisy { own } else { clean };
        let value = median(&used.into_iter().map(of).collect::<Vec<_>>())?;
        Some(Measured { value, noisy })
    }
}

impl Row {
    fn to_markdown(&self) -> String {
        let digits = self.digits;
        let show = |measured: Option<Measured>| match measured {
            Some(Measured { value, noisy }) => format!("{value:.digits$}{}", if noisy { "~" } else { "" }),
            None => "-".to_owned(),
        };
        let peer = self.peer.map_or_else(
            || "-".to_owned(),
            |(system, measured)| {
                let name = system.name();
                let name = name.split_once(' ').map_or(name, |(name, _)| name);
                format!("{} ({name})", show(Some(measured)))
            },
        );
        let aim = match self.aim {
            Aim::AtMost(limit) => format!("<= {limit}"),
            Aim::AtLeast(limit) => format!(">= {limit}"),
            Aim::None => "-".to_owned(),
        };
        let ratio = self
            .ratio()
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let met = match self.is_met() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        format!(
            "| {} | {} | {peer} | {} | {aim} | {ratio} | {met} |",
            self.figure,
            show(self.nginx),
            show(self.ours)
        )
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.ours?.value / self.nginx?.value)
    }

    fn is_met(&self) -> Option<bool> {
        let ours = self.ours?.value;
        match self.aim {
            Aim::AtMost(limit) => Some(ours <= limit),
            Aim::AtLeast(limit) => Some(ours >= limit),
            Aim::None => None,
        }
    }

    fn to_json(&self) -> Value {
        let value = |measured: Option<Measured>| measured.map(|measured| measured.value);
        json!({
            "figure": self.figure,
            "nginx": value(self.nginx),
            "peer": self.peer.map(|(system, measured)| json!({ "system": system.name(), "value": measured.value })),
            "ours": value(self.ours),
            "to_nginx": self.ratio(),
            "met": self.is_met(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn done(system: System, scenario: Scenario, cost: f64, latency_ns: u64) -> Try {
        let mut done = Try::undisturbed(system, scenario, cost);
        done.report.latency.record(Duration::from_nanos(latency_ns));
        done
    }

    /// Checks the row whose figure begins so.
    #[track_caller]
    fn check(tries: &[Try], figure: &str, expected: &str) {
        let figures = Figures::new(tries, &[], System::CacheAwareLive, 4);
        let text = figures.to_markdown(&[64]);
        let row = text.lines().find(|line| line.starts_with(&format!("| {figure}")));
        assert_eq!(row, Some(expected), "{text}");
    }

    #[test]
    fn a_row_has_the_best_peer_and_the_ratio_to_nginx() {
        let tries = [
            done(System::Nginx, Scenario::Kib1, 10.0, 1),
            done(System::Nginx, Scenario::Kib1, 10.0, 1),
            done(System::VllmRr, Scenario::Kib1, 40.0, 1),
            done(System::SmgRr, Scenario::Kib1, 90.0, 1),
            done(System::CacheAwareLive, Scenario::Kib1, 22.0, 1),
            done(System::CacheAwareLive, Scenario::Kib1, 24.0, 1),
        ];
        check(
            &tries,
            "CPU per 1 KiB",
            "| CPU per 1 KiB chat request, us | 10.0 | 40.0~ (vllm-router) | 23.0 | <= 25 | 2.30 | yes |",
        );
        check(
            &tries,
            "requests/s",
            "| requests/s per core, 1 KiB | 200 | 200~ (smg) | 200 | >= 40000 | 1.00 | no |",
        );
    }

    #[test]
    fn latencies_are_what_is_added_to_no_proxy() {
        let twice = |system, latency| {
            [
                done(system, Scenario::One, 1.0, latency),
                done(system, Scenario::One, 1.0, latency),
            ]
        };
        let tries: Vec<_> = [
            twice(System::Direct, 1 << 14),
            twice(System::Nginx, 1 << 15),
            twice(System::CacheAwareLive, 1 << 16),
        ]
        .into_iter()
        .flatten()
        .collect();
        check(
            &tries,
            "added latency p50, one",
            "| added latency p50, one connection, us | 16.4 | - | 49.2 | <= 45 | 3.00 | no |",
        );
    }

    #[test]
    fn a_missing_measurement_is_a_dash() {
        check(&[], "RSS idle", "| RSS idle, MiB | - | - | - | <= 30 | - | - |");
    }
}
