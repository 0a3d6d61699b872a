//! Accuracy of the model for a recorded log, without a report.

use anyhow::{Context as _, anyhow};

use super::RecordedTrace;
use super::measured::Measured;
use crate::args::SimulateArgs;
use crate::simulate::setting::Setting;

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

impl LogAccuracy {
    /// Simulates the log of these arguments with its own policy and workers.
    ///
    /// # Errors
    /// If the log cannot be read or simulated, or its policy is not built in.
    pub fn of(args: &SimulateArgs) -> anyhow::Result<Self> {
        let recorded =
            RecordedTrace::read(args)?.ok_or_else(|| anyhow!("failed to compare: name a --log"))?;
        let setting = Setting::of(args, Some(&recorded))?;
        let contestants = recorded.contestants(&[])?;
        let policy = contestants
            .first()
            .context("failed to compare: the log's policy is not built in")?;
        let measured = Measured::of(&recorded.recording, policy, &setting.spec)?;
        Ok(measured.accuracy())
    }
}
