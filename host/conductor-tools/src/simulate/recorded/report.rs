//! Report on a decision log, and on the error of the model against the measurements.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use simulator::{Fit, FitFrom, FitQuality};

use super::measured::Measured;
use super::requests::LeftOut;

/// A fit that explains less of the variance is warned of, if it also misses the times.
const LEAST_R2: f64 = 0.5;
/// Median error of a fit that does not miss the times.
const MAX_MEDIAN_ERROR: f64 = 0.1;

/// Report on a decision log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::simulate) struct RecordedReport {
    pub(super) about: About,
    #[serde(skip_serializing_if = "NotModelled::is_empty")]
    pub(super) not_modelled: NotModelled,
    /// Comparison with the measurements; `None` for another policy, or other workers than in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<Measured>,
}

/// Facts of the recorded fleet and traffic that the simulation lacks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct NotModelled {
    /// Set if the simulated workers have different weights and equal speeds.
    pub(super) only_weights_differ: bool,
    /// Numbers that simulated policies read and that are unknown in a simulation, with the policies.
    pub(super) unknown_numbers: BTreeMap<String, Vec<String>>,
}

impl NotModelled {
    fn is_empty(&self) -> bool {
        !self.only_weights_differ && self.unknown_numbers.is_empty()
    }
}

/// Properties of the log.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct About {
    pub(super) pool: String,
    pub(super) policy: String,
    /// Share of the simulated requests that it placed.
    pub(super) policy_share: f64,
    /// Share of the router's requests that are in the log.
    pub(super) recorded_share: f64,
    /// Lines that are no line of a log.
    pub(super) unreadable_lines: u64,
    /// Requests of any pool without a decision.
    pub(super) without_decision: u64,
    pub(super) left_out: LeftOut,
    /// Share of the simulated requests whose prompts' blocks are known.
    pub(super) with_blocks: f64,
    /// Mean time between arrival and first decision, in milliseconds: not simulated.
    pub(super) before_decision_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fit: Option<FitReport>,
}

/// Fitted costs, and their errors.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FitReport {
    from: FitFrom,
    /// Milliseconds for every prompt, for a thousand uncached tokens and for a thousand cached ones.
    prefill_ms: [f64; 3],
    prompts: FitQuality,
    /// Milliseconds for every step, for every request in it and for a thousand tokens they hold.
    step_ms: [f64; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<FitQuality>,
}

impl FitReport {
    pub(super) fn of(fit: &Fit) -> Self {
        Self {
            from: fit.from,
            prefill_ms: fit.profile.prefill_ms,
            prompts: fit.prompts,
            step_ms: fit.profile.step_ms,
            steps: fit.steps,
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            not_served,
            not_placed,
            lengths_unknown,
            unfinished,
        } = self;
        write!(
            f,
            "{not_served} were not served, {not_placed} were not placed, {lengths_unknown} lack the prompt's or the answer's length, and {unfinished} have no end"
        )
    }
}

impl fmt::Display for RecordedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.about, self.not_modelled)?;
        match &self.measured {
            Some(measured) => write!(f, "\n{measured}"),
            None => writeln!(
                f,
                "The measurements are not compared with a simulation: the recorded policy is not available, or --workers differs from the log."
            ),
        }
    }
}

impl fmt::Display for NotModelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.only_weights_differ {
            writeln!(
                f,
                "The workers have different weights and equal speeds: --worker-speeds sets the speeds."
            )?;
        }
        for (number, policies) in &self.unknown_numbers {
            writeln!(f, "Unknown here: `{number}`, read by {}.", policies.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        writeln!(
            f,
            "Recording: pool `{}`, {} of the requests placed by {}; {:.1} ms passed before the first decision and are not simulated.",
            self.pool,
            share(self.policy_share),
            self.policy,
            self.before_decision_ms,
        )?;
        if self.recorded_share < 0.99 {
            writeln!(
                f,
                "The log has {} of the router's requests, and the simulation no load of the others.",
                share(self.recorded_share)
            )?;
        }
        if self.with_blocks < 0.99 {
            writeln!(
                f,
                "Blocks are known of {} of the prompts; the others share nothing.",
                share(self.with_blocks)
            )?;
        }
        if self.left_out != LeftOut::default() || self.unreadable_lines + self.without_decision > 0 {
            writeln!(
                f,
                "Left out: {}; {} of any pool have no decision, and {} lines were unreadable.",
                self.left_out, self.without_decision, self.unreadable_lines
            )?;
        }
        self.fit.as_ref().map_or(Ok(()), |fit| write!(f, "{fit}"))
    }
}

impl fmt::Display for FitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [fixed, uncached, cached] = self.prefill_ms;
        writeln!(
            f,
            "A prompt takes {fixed:.2} ms, {uncached:.2} ms for 1,000 uncached and {cached:.2} ms for 1,000 cached tokens: {}, of {}.",
            fit_quality(&self.prompts),
            self.from,
        )?;
        if is_poor(&self.prompts) {
            writeln!(
                f,
                "The fit explains little of the measurements: the times below are unreliable. Record while workers are idle at times."
            )?;
        }
        let [fixed, by_request, by_thousand] = self.step_ms;
        write!(
            f,
            "A step takes {fixed:.2} ms, {by_request:.2} ms for each request and {by_thousand:.2} ms for 1,000 tokens they hold"
        )?;
        match &self.steps {
            Some(steps) => writeln!(f, ": {}, of answers.", fit_quality(steps))?,
            None => writeln!(f, ": too few answers for more than that.")?,
        }
        if self.steps.as_ref().is_some_and(is_poor) {
            writeln!(
                f,
                "The fit of steps explains little of the measurements: the times between tokens below are unreliable."
            )?;
        }
        Ok(())
    }
}

/// Returns whether a fit misses the measurements. Equal ones have no variance to explain, so their error decides.
fn is_poor(quality: &FitQuality) -> bool {
    let explains = quality.r2 >= LEAST_R2;
    !explains && quality.median_error > MAX_MEDIAN_ERROR
}

fn fit_quality(quality: &FitQuality) -> String {
    format!(
        "R2 {:.3}, median error {:.1} %, {} left out of {}",
        quality.r2,
        100.0 * quality.median_error,
        quality.left_out,
        quality.samples
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quality(r2: f64, median_error: f64) -> FitQuality {
        FitQuality {
            samples: 12,
            left_out: 0,
            r2,
            median_error,
        }
    }

    #[test]
    fn a_fit_that_misses_the_times_is_poor_even_of_equal_measurements() {
        assert!(is_poor(&quality(f64::NAN, 1.0)) && is_poor(&quality(0.2, 0.3)));
        assert!(!is_poor(&quality(f64::NAN, 0.0)) && !is_poor(&quality(0.9, 0.3)));
    }
}
