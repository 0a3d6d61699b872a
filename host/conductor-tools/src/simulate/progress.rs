//! A bar on the terminal while runs are made. Where standard error is no terminal there is none. A process of a router
//! writes its progress in lines instead.

use super::jobs::PROGRESS;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar for each run.
const STEPS: u64 = 1_000;

/// The bar; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct RunProgress {
    bar: ProgressBar,
    runs: usize,
    /// Last reported share, if it is written in lines.
    reported: Option<f64>,
}

impl RunProgress {
    /// Returns the progress of so many runs.
    pub(super) fn of(runs: usize, is_job: bool) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::stderr_with_hz(10));
        // The text is this file's own; were it wrong, there would be a plain bar.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}, {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self {
            bar,
            runs,
            reported: is_job.then_some(0.0),
        }
    }

    /// Shows `made` finished runs, and `parts` of those under way, in runs.
    pub(super) fn show(&mut self, made: usize, parts: f64) {
        if let Some(reported) = &mut self.reported {
            let share = (made as f64 + parts) / self.runs.max(1) as f64;
            if share > *reported {
                eprintln!("{PROGRESS}{share:.4}");
                *reported = share;
            }
            return;
        }
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
