//! Comparison of measured and simulated figures, for the policy that decided.

use std::fmt;

use serde::Serialize;
use simulator::{Outcome, Quantiles, Recording, RouterSpec, RunSpec};

use crate::simulate::contestant::Contestant;
use operator_tools::table::{Side, Table};
use operator_tools::units::UNKNOWN;

/// The two, of the requests that have both.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Measured {
    policy: String,
    /// Time from the first decision to the first token, in milliseconds.
    ttft_ms: Pair<Quantiles>,
    /// Mean times between the tokens of an answer, in milliseconds.
    gap_ms: Pair<Quantiles>,
    /// Simulated over measured, less one.
    ttft_error: Errors,
    gap_error: Errors,
    /// Median over the requests of the error of each one's time to first token, whatever its sign.
    median_ttft_error: f64,
    /// Share of the prompts' tokens that were not computed, if the log has it.
    token_hit_ratio: Pair<f64>,
}

/// Measured and simulated figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredFigure {
    /// Figure of the log.
    pub measured: f64,
    /// Figure of the simulation of the recorded policy.
    pub simulated: f64,
}

/// Accuracy of the simulation of a log, over the requests with a time to first token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogAccuracy {
    /// Number of requests.
    pub requests: usize,
    /// Mean time from the first decision to the first token, in milliseconds.
    pub mean_ms: MeasuredFigure,
    /// 99th percentile of these times.
    pub p99_ms: MeasuredFigure,
    /// Share of the prompts' tokens that were not computed.
    pub cached: MeasuredFigure,
}

impl MeasuredFigure {
    /// Returns the error of the simulation, as a share of the measured figure.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Pair<T> {
    measured: T,
    simulated: T,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Errors {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

impl Measured {
    /// Places the recorded requests by the policy, as they came, with one router and without failures: the log has
    /// no failures.
    pub(super) fn of(recording: &Recording, contestant: &Contestant, spec: &RunSpec) -> anyhow::Result<Self> {
        let policy = contestant.load()?;
        let spec = RunSpec {
            failures: Vec::new(),
            router: RouterSpec {
                deaths: Vec::new(),
                sharing: None,
                ..spec.router.clone()
            },
            ..spec.clone()
        };
        let simulated = simulator::run(&recording.trace, [simulator::Policies::One(policy)], &spec);
        let ttft = |outcome: &Outcome, at: usize| Some(outcome.courses[at].ttft_us()? as f64 / 1e3);
        let ttfts = pairs(recording, |at| {
            Some((ttft(&recording.measured, at)?, ttft(&simulated, at)?))
        });
        let gaps = pairs(recording, |at| {
            let gaps = f64::from(recording.trace.requests[at].output_tokens - 1);
            let course = &simulated.courses[at];
            let took_us = course.finished_us? - course.first_token_us?;
            Some((recording.mean_gap_us(at)? / 1e3, took_us as f64 / 1e3 / gaps))
        });
        let each = ttfts
            .iter()
            .map(|(measured, simulated)| (simulated / measured - 1.0).abs());
        let each = Quantiles::of(each.filter(|error| error.is_finite()));
        let (ttft_ms, gap_ms) = (quantiles(&ttfts), quantiles(&gaps));
        Ok(Self {
            policy: contestant.label.clone(),
            ttft_error: errors(&ttft_ms),
            gap_error: errors(&gap_ms),
            ttft_ms,
            gap_ms,
            median_ttft_error: each.p50,
            token_hit_ratio: hits(recording, &simulated),
        })
    }
}

impl Measured {
    /// Returns the main figures.
    pub(super) fn accuracy(&self) -> LogAccuracy {
        let figure = |measured, simulated| MeasuredFigure { measured, simulated };
        let Pair { measured, simulated } = self.ttft_ms;
        LogAccuracy {
            requests: measured.count,
            mean_ms: figure(measured.mean, simulated.mean),
            p99_ms: figure(measured.p99, simulated.p99),
            cached: figure(self.token_hit_ratio.measured, self.token_hit_ratio.simulated),
        }
    }
}

fn pairs(recording: &Recording, of: impl Fn(usize) -> Option<(f64, f64)>) -> Vec<(f64, f64)> {
    (0..recording.trace.requests.len()).filter_map(of).collect()
}

fn quantiles(pairs: &[(f64, f64)]) -> Pair<Quantiles> {
    Pair {
        measured: Quantiles::of(pairs.iter().map(|(measured, _)| *measured)),
        simulated: Quantiles::of(pairs.iter().map(|(_, simulated)| *simulated)),
    }
}

fn errors(of: &Pair<Quantiles>) -> Errors {
    let error = |figure: fn(&Quantiles) -> f64| figure(&of.simulated) / figure(&of.measured) - 1.0;
    Errors {
        mean: error(|quantiles| quantiles.mean),
        p50: error(|quantiles| quantiles.p50),
        p90: error(|quantiles| quantiles.p90),
        p99: error(|quantiles| quantiles.p99),
    }
}

/// Returns the share over the requests with known cached tokens.
fn hits(recording: &Recording, simulated: &Outcome) -> Pair<f64> {
    let ratio = |outcome: &Outcome| {
        let (mut cached, mut tokens) = (0, 0);
        for (at, _) in recording
            .has_cached
            .iter()
            .enumerate()
            .filter(|(_, has_cached)| **has_cached)
        {
            cached += u64::from(outcome.courses[at].cached_tokens);
            tokens += u64::from(recording.trace.requests[at].prompt_tokens);
        }
        cached as f64 / tokens as f64
    };
    Pair {
        measured: ratio(&recording.measured),
        simulated: ratio(simulated),
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&[
            ("measured and simulated", Side::Left),
            ("mean", Side::Right),
            ("p50", Side::Right),
            ("p90", Side::Right),
            ("p99", Side::Right),
        ]);
        for (title, pair, error) in [
            ("TTFT ms", &self.ttft_ms, &self.ttft_error),
            ("ms a token", &self.gap_ms, &self.gap_error),
        ] {
            table.row(row(format!("{title}, measured"), &pair.measured));
            table.row(row(format!("{title}, simulated"), &pair.simulated));
            let figures = [error.mean, error.p50, error.p90, error.p99];
            let figures = figures.map(|error| known(error, |error| format!("{:+.1} %", 100.0 * error)));
            table.row([vec!["error".to_owned()], figures.to_vec()].concat());
        }
        let hits = &self.token_hit_ratio;
        writeln!(
            f,
            "{table}\n{}: {} requests, half of them off by less than {}. Cached {} measured, {} simulated.",
            self.policy,
            self.ttft_ms.measured.count,
            percent(self.median_ttft_error),
            percent(hits.measured),
            percent(hits.simulated),
        )
    }
}

fn row(title: String, quantiles: &Quantiles) -> Vec<String> {
    let figures = [quantiles.mean, quantiles.p50, quantiles.p90, quantiles.p99];
    let figures = figures.map(|figure| known(figure, |figure| format!("{figure:.1}")));
    [vec![title], figures.to_vec()].concat()
}

fn percent(share: f64) -> String {
    known(share, |share| format!("{:.1} %", 100.0 * share))
}

/// Formats a figure, with a dash for one that no request defines.
fn known(figure: f64, format: impl Fn(f64) -> String) -> String {
    match figure.is_finite() {
        true => format(figure),
        false => UNKNOWN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_no_request_are_dashes() {
        let none = quantiles(&[]);
        let measured = Measured {
            policy: "mine".to_owned(),
            ttft_error: errors(&none),
            gap_error: errors(&none),
            ttft_ms: none,
            gap_ms: none,
            median_ttft_error: f64::NAN,
            token_hit_ratio: Pair {
                measured: 0.5,
                simulated: f64::NAN,
            },
        };
        let text = measured.to_string();
        assert!(!text.contains("NaN"), "{text}");
        let end = "mine: 0 requests, half of them off by less than -. Cached 50.0 % measured, - simulated.\n";
        assert!(text.ends_with(end), "{text}");
    }
}
