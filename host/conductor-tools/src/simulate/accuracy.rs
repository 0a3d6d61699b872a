//! Accuracy of the model for a recorded log, without a report.

use anyhow::anyhow;

use super::recorded::{LogAccuracy, RecordedTrace};
use super::setting::Setting;
use crate::args::SimulateArgs;

impl LogAccuracy {
    /// Simulates the log of these arguments with its own policy and workers.
    ///
    /// # Errors
    /// If the log cannot be read or simulated, or its policy is not built in.
    pub fn of(args: &SimulateArgs) -> anyhow::Result<Self> {
        let recorded =
            RecordedTrace::read(args)?.ok_or_else(|| anyhow!("failed to compare: name a --log"))?;
        let setting = Setting::of(args, Some(&recorded))?;
        recorded.accuracy(&setting.spec)
    }
}
