//! `[log]`: what is logged and how.

use crate::code::Code;
use crate::report::{Problem, Report};
use crate::section::Section;
use crate::suggest;
use crate::value::Text;

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Directives of `tracing`'s filter: `info`, or `info,proxy=debug`.
    pub level: String,
    /// How each line looks.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
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

/// Checks `LEVEL` and `TARGET=LEVEL`, parted by commas. Directives with spans (`target[span]=level`) have a
/// grammar of their own and are left to the filter.
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
