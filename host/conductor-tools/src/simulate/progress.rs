//! A bar on the terminal while runs are made. Where standard error is no terminal there is none.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar for each run.
const STEPS: u64 = 1_000;

/// The bar; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct RunProgress {
    bar: ProgressBar,
    runs: usize,
}

impl RunProgress {
    /// Returns the progress of so many runs.
    pub(super) fn of(runs: usize) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::stderr_with_hz(10));
        // The text is this file's own; were it wrong, there would be a plain bar.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}, {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, runs }
    }

    /// Shows `made` finished runs, and `parts` of those under way, in runs.
    pub(super) fn show(&self, made: usize, parts: f64) {
        self.bar.set_message(format!("{made} of {} runs", self.runs));
        self.bar
            .set_position(made as u64 * STEPS + (parts * STEPS as f64) as u64);
    }
}

impl Drop for RunProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
