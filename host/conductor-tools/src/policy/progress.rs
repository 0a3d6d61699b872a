//! Progress of a long step on standard error: a spinner on a terminal, else one line a part. Standard output is the
//! report's.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use policy_runtime::RehearsalStep;

/// Interval of the spinner.
const TURN: Duration = Duration::from_millis(100);
/// Text of the spinner.
const TEMPLATE: &str = "{spinner} {msg}, {elapsed}";

/// Progress of one command; the spinner goes when this is dropped.
#[derive(Debug)]
pub(super) struct StepProgress(Option<ProgressBar>);

impl StepProgress {
    /// Begins.
    pub(super) fn begin() -> Self {
        Self(stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            // The text is this file's own; were it wrong, there would be a plain spinner.
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                spinner.set_style(style);
            }
            spinner
        }))
    }

    /// Returns the spinner, if there is a terminal for it.
    pub(super) fn spinner(&self) -> Option<&ProgressBar> {
        self.0.as_ref()
    }

    /// Shows a part that begins.
    pub(super) fn part(&self, text: &str) {
        match &self.0 {
            Some(spinner) => {
                spinner.set_message(text.to_owned());
                spinner.reset_elapsed();
                // The first part starts it.
                spinner.enable_steady_tick(TURN);
            }
            None => eprintln!("{text}"),
        }
    }

    /// Shows one of many small parts, on a terminal only.
    pub(super) fn detail(&self, text: &str) {
        if let Some(spinner) = &self.0 {
            spinner.set_message(text.to_owned());
        }
    }

    /// Shows a part of a check.
    pub(super) fn rehearses(&self, policy: &str, step: RehearsalStep) {
        match step {
            RehearsalStep::Compiling => self.part(&format!("{policy}: compiling")),
            RehearsalStep::Scenario { number: 1, of, .. } => {
                self.part(&format!("{policy}: deciding {of} scenarios"));
            }
            RehearsalStep::Scenario { name, number, of } => {
                self.detail(&format!("{policy}: scenario {number} of {of}, {name}"));
            }
            RehearsalStep::Endurance => {
                self.part(&format!(
                    "{policy}: deciding many requests in a row, for up to 10 s"
                ));
            }
            RehearsalStep::Events => self.detail(&format!("{policy}: events and ticks")),
        }
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}
