//! `[log]`: log level and format, and the access log.

use std::path::{Path, PathBuf};

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::{Mark, Source};
use crate::document::suggest;
use crate::document::value::{Item, Text};
use crate::known::PolicyFiles;
use crate::record;

/// `[log]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// Directives of `tracing`'s filter: `info`, or `info,proxy=debug`.
    pub level: String,
    /// Position of `level`. `None` for the default.
    pub level_at: Option<Mark>,
    /// Format of log lines.
    pub format: LogFormat,
    /// Output of the access log. `None` for no log.
    pub access: Option<AccessOutput>,
    /// Share of requests in the access log, from 0 to 1, besides those that fail.
    pub access_sample: f64,
    /// Size at which the access log is rotated, in bytes.
    pub access_max_bytes: u64,
    /// Number of rotated access logs that are kept.
    pub access_keep: u32,
}

/// Output of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessOutput {
    /// The standard output.
    Stdout,
    /// File as written; a relative path starts at the file's folder.
    File(PathBuf),
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
            level_at: None,
            format: LogFormat::Text,
            access: None,
            access_sample: 1.0,
            access_max_bytes: 256 << 20,
            access_keep: 4,
        }
    }
}

impl LogConfig {
    /// Returns the file of the access log.
    pub(crate) fn access_file(&self) -> Option<&Path> {
        match self.access.as_ref()? {
            AccessOutput::Stdout => None,
            AccessOutput::File(path) => Some(path),
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(crate) fn read(section: Option<Section<'_>>, files: &dyn PolicyFiles) -> LogConfig {
    let default = LogConfig::default();
    let Some(mut log) = section else {
        return default;
    };
    let level = log.text("level").filter(|level| check_level(level, log.report()));
    let config = LogConfig {
        level_at: level.as_ref().map(|level| log.report().mark(&level.span)),
        level: level.map_or(default.level, |level| level.text.to_owned()),
        format: log.choice(
            "format",
            default.format,
            &[("text", LogFormat::Text), ("json", LogFormat::Json)],
        ),
        access: log.item("access").and_then(|item| read_access(&item, files)),
        access_sample: log
            .item("access-sample")
            .and_then(|item| item.not_negative(1.0))
            .unwrap_or(default.access_sample),
        access_max_bytes: log.size("access-max-bytes", default.access_max_bytes, record::FILE_SIZES),
        access_keep: record::count(&mut log, "access-keep", default.access_keep, 1_000),
    };
    log.finish();
    config
}

fn read_access(item: &Item<'_>, files: &dyn PolicyFiles) -> Option<AccessOutput> {
    let path = record::read_file(item, "access.jsonl")?;
    Some(match path.to_str() {
        Some("-") => AccessOutput::Stdout,
        _ => {
            record::warn_of_folder(item, &path, files);
            AccessOutput::File(path)
        }
    })
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
    Err(report.first_problem())
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
        let message = |level| check_log_level(level).unwrap_err();
        assert_eq!(message("inof"), "`inof` is not a log level: did you mean `info`?");
        assert!(message("loud").contains("LEVEL is one of"), "{}", message("loud"));
        assert!(message("").contains("not a log level"));
        assert!(message("proxy=").contains("not a log level"));
    }
}
