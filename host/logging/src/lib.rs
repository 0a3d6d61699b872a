//! Log output: format and filter of the lines.
//!
//! A reload of `[log] level` changes the filter of a running program, unless the command line sets it. The format is
//! fixed at start.

mod json;
mod text;

use thiserror::Error;
use tracing::{Subscriber, warn};
use tracing_subscriber::fmt::format::JsonFields;
pub use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use self::json::JsonLines;
use self::text::EscapedFields;
use observability::error_chain;

/// Directive that is added to `error`, `warn` and `info` without modules. The NATS client logs every attempt to
/// connect; the router logs each fault once.
const QUIET: &str = "async_nats=off";

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text {
        /// Colours the lines.
        is_coloured: bool,
    },
    /// One JSON object a line.
    Json,
}

/// Handle of the filter of a running program.
#[derive(Debug, Clone)]
pub struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    /// True if the command line sets the level: the configuration does not change it then.
    is_pinned: bool,
}

/// Log level and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel<'a> {
    /// The command line, for as long as the program runs.
    Flag(&'a str),
    /// The configuration, or the program's own choice; a reload may change it.
    Default(&'a str),
}

impl<'a> LogLevel<'a> {
    /// Returns the flag's value if there is one, else the default.
    #[must_use]
    pub fn choose(flag: Option<&'a str>, default: &'a str) -> Self {
        flag.map_or(Self::Default(default), Self::Flag)
    }

    fn directive(self) -> &'a str {
        match self {
            Self::Flag(directive) | Self::Default(directive) => directive,
        }
    }
}

/// Error of a log filter.
#[derive(Debug, Error)]
pub enum LogFilterError {
    /// Not a filter directive.
    #[error("understand the log level `{directive}`")]
    Parse {
        /// Requested filter.
        directive: String,
        /// Error of the system.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
}

/// Parsed filter.
#[derive(Debug)]
pub struct ParsedFilter(EnvFilter);

/// Parses a filter, such as `info` or `warn,conductor=debug`.
///
/// # Errors
/// [`LogFilterError`].
pub fn parse(directive: &str) -> Result<ParsedFilter, LogFilterError> {
    filter(directive).map(ParsedFilter)
}

impl LogFilter {
    /// Applies the configuration's filter. Does nothing if the command line sets the level, or if the subscriber is
    /// gone.
    pub fn apply(&self, ParsedFilter(filter): ParsedFilter) {
        if self.is_pinned {
            return;
        }
        if let Err(error) = self.handle.reload(filter) {
            warn!(
                error = error_chain(&error),
                "failed to change the log level: the old one stays"
            );
        }
    }
}

/// Installs the global subscriber, writing to stderr. A second call changes nothing (tests start many routers in one
/// process).
///
/// # Errors
/// [`LogFilterError::Parse`].
pub fn init(level: LogLevel<'_>, format: LogFormat) -> Result<LogFilter, LogFilterError> {
    init_with(level, format, BoxMakeWriter::new(std::io::stderr))
}

/// Starts the log with a writer that ends at stderr.
///
/// # Errors
/// [`LogFilterError::Parse`].
pub fn init_with(
    level: LogLevel<'_>,
    format: LogFormat,
    writer: BoxMakeWriter,
) -> Result<LogFilter, LogFilterError> {
    let (filter, handle) = reload::Layer::new(filter(level.directive())?);
    let lines = lines(format, writer);
    // An error means that a subscriber is installed already.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(LogFilter {
        handle,
        is_pinned: matches!(level, LogLevel::Flag(_)),
    })
}

/// Returns the layer that writes lines of that format.
fn lines<S>(format: LogFormat, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text { is_coloured } => lines.with_ansi(is_coloured).fmt_fields(EscapedFields).boxed(),
        LogFormat::Json => lines
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines)
            .boxed(),
    }
}

/// Checks a value of the key `level` of `[log]`.
///
/// # Errors
/// The mistake, and a valid value.
pub fn check_level(directive: &str) -> Result<(), String> {
    conductor_config::check_log_level(directive)?;
    filter(directive).map(drop).map_err(|error| error_chain(&error))
}

fn filter(directive: &str) -> Result<EnvFilter, LogFilterError> {
    let level = directive.trim().to_ascii_lowercase();
    let is_plain = matches!(&*level, "error" | "warn" | "info");
    let full = is_plain.then(|| format!("{level},{QUIET}"));
    EnvFilter::builder()
        .parse(full.as_deref().unwrap_or(directive))
        .map_err(|source| LogFilterError::Parse {
            directive: directive.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter_of(level: LogLevel<'_>) -> (LogFilter, reload::Layer<EnvFilter, Registry>) {
        let (layer, handle) = reload::Layer::new(filter(level.directive()).unwrap());
        let is_pinned = matches!(level, LogLevel::Flag(_));
        (LogFilter { handle, is_pinned }, layer)
    }

    #[test]
    fn the_level_of_the_command_line_outlives_reloads() {
        let now = |log: &LogFilter| log.handle.with_current(ToString::to_string).unwrap();
        let (log, _layer) = filter_of(LogLevel::choose(Some("debug"), "info"));
        log.apply(parse("error").unwrap());
        assert_eq!(now(&log), "debug");
        let (log, _layer) = filter_of(LogLevel::choose(None, "info"));
        log.apply(parse("error").unwrap());
        assert_eq!(now(&log), filter("error").unwrap().to_string());
    }

    #[test]
    fn a_level_without_modules_leaves_out_the_lines_of_the_nats_client() {
        for plain in ["error", "WARN", " info"] {
            assert!(filter(plain).unwrap().to_string().contains(QUIET), "{plain}");
        }
        for own in [
            "debug",
            "trace",
            "off",
            "info,proxy=debug",
            "info,async_nats=info",
        ] {
            assert!(!filter(own).unwrap().to_string().contains(QUIET), "{own}");
        }
    }
}
