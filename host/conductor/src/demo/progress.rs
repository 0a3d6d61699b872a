//! The progress of a comparison: a bar on the terminal, above which log lines are written whole. Where standard error
//! is no terminal there is no bar, and log lines are written as ever.

use std::convert::Infallible;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use logging::BoxMakeWriter;
use mock_engine::MockEngine;

/// Interval of the progress bar.
const EVERY: Duration = Duration::from_millis(200);

/// The bar; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Requests of the policies that are measured already.
    before: u64,
}

impl Progress {
    /// Returns the progress of so many requests.
    pub(super) fn of(requests: u64) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = ProgressBar::with_draw_target(Some(requests), target);
        // The text is this file's own; were it wrong, there would be a plain bar.
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos} of {len} requests, {msg}, {eta} left")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, before: 0 }
    }

    /// Returns a writer of log lines that leaves the bar whole.
    pub(super) fn log_writer(&self) -> BoxMakeWriter {
        let bar = self.bar.clone();
        BoxMakeWriter::new(move || AboveBar(bar.clone()))
    }

    /// Shows the policy that is measured now.
    pub(super) fn begin(&self, policy: &str) {
        self.bar.set_message(policy.to_owned());
        self.bar.tick();
    }

    /// Follows the requests that the engines complete, until it is dropped.
    pub(super) async fn follow(&self, engines: &[MockEngine]) -> Infallible {
        loop {
            let completed: u64 = engines.iter().map(|engine| engine.stats().completed).sum();
            self.bar.set_position(self.before + completed);
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Adds the requests of a policy that is finished.
    pub(super) fn end(&mut self, requests: u64) {
        self.before += requests;
        self.bar.set_position(self.before);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Standard error, with the bar out of the way while a line is written.
struct AboveBar(ProgressBar);

impl Write for AboveBar {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
