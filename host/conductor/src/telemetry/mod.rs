//! Logs. The filter can be changed while running (a reload of `[log] level`); the format cannot.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Changes the filter of a running program.
#[derive(Debug, Clone)]
pub(crate) struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
}

/// A filter that could not be put in force.
#[derive(Debug, Error)]
pub(crate) enum LogFilterError {
    /// Not a filter directive.
    #[error("understand the log level `{directive}`")]
    Parse {
        /// What was asked for.
        directive: String,
        /// Why not.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The subscriber is gone.
    #[error("change the log level of the running program")]
    Reload(#[source] reload::Error),
}

impl LogFilter {
    /// Puts a filter in force, such as `info` or `warn,conductor=debug`.
    ///
    /// # Errors
    /// [`LogFilterError`]; the old filter stays.
    pub(crate) fn set(&self, directive: &str) -> Result<(), LogFilterError> {
        self.handle
            .reload(filter(directive)?)
            .map_err(LogFilterError::Reload)
    }
}

/// Installs the global subscriber, writing to stderr. A second call changes nothing (tests start many routers in one process).
///
/// # Errors
/// [`LogFilterError::Parse`].
pub(crate) fn init(directive: &str, format: LogFormat) -> Result<LogFilter, LogFilterError> {
    let (filter, handle) = reload::Layer::new(filter(directive)?);
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // An error means that a subscriber is installed already.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(LogFilter { handle })
}

fn filter(directive: &str) -> Result<EnvFilter, LogFilterError> {
    EnvFilter::builder()
        .parse(directive)
        .map_err(|source| LogFilterError::Parse {
            directive: directive.to_owned(),
            source,
        })
}
