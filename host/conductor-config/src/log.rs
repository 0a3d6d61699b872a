//! `[log]`: log level and format.

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Source;
use crate::document::suggest;
use crate::document::value::Text;

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Directives of `tracing`'s filter: `info`, or `info,proxy=debug`.
    pub level: String,
    /// Format of log lines.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(crate) fn read(section: Option<Section<'_>>) -> LogConfig {
    let default = LogConfig::default();
    let Some(mut log) = section else {
        return default;
    };
    let level = log.text("level").filter(|level| check_level(level, log.report()));
    let config = LogConfig {
        level: level.map_or(default.level, |level| level.text.to_owned()),
        format: log.choice(
            "format",
            default.format,
            &[("text", LogFormat::Text), ("json", LogFormat::Json)],
        ),
    };
    log.finish();
    config
}

/// Checks a log level as in the key `level` of `[log]`.
///
/// # Errors
/// The fault, and a valid example.
pub fn check_log_level(level: &str) -> Result<(), String> {
    let report = Report::new(Source::new("log level", level));
    let text = Text {
        text: level,
        span: 0..level.len(),
    };
    if check_level(&text, &report) {
        return Ok(());
    }
    let found = report.into_diagnostics();
    let problem = found.items().first();
    Err(problem.map_or_else(String::new, |problem| match &problem.help {
        Some(help) => format!("{}: {help}", problem.message),
        None => problem.message.clone(),
    }))
}

/// Checks `LEVEL` and `TARGET=LEVEL`, separated by commas. Directives with spans (`target[span]=level`) have a grammar
/// of their own and are left to the filter.
fn check_level(level: &Text<'_>, report: &Report) -> bool {
    if level.text.contains('[') {
        return true;
    }
    let bad = level.text.split(',').map(str::trim).find(|directive| {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("any", directive));
        target.trim().is_empty() || !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str())
    });
    let Some(bad) = bad else {
        return true;
    };
    let wrong = bad.rsplit_once('=').map_or(bad, |(_, level)| level.trim());
    let help = match suggest::nearest(wrong, LEVELS) {
        Some(near) if near != wrong => format!("did you mean `{near}`?"),
        _ => format!(
            "write LEVEL or TARGET=LEVEL, parted by commas; LEVEL is one of {}",
            suggest::list(LEVELS)
        ),
    };
    report.push(
        Problem::new(
            Code::InvalidValue,
            &level.span,
            format!("`{bad}` is not a log level"),
        )
        .help(help),
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused_with_those_there_are() {
        for good in ["info", "WARN", "warn,proxy=debug", "off", "proxy[request]=trace"] {
            assert_eq!(check_log_level(good), Ok(()), "{good}");
        }
        let says = |level| check_log_level(level).unwrap_err();
        assert_eq!(says("inof"), "`inof` is not a log level: did you mean `info`?");
        assert!(says("loud").contains("LEVEL is one of"), "{}", says("loud"));
        assert!(says("").contains("not a log level"));
        assert!(says("proxy=").contains("not a log level"));
    }
}
