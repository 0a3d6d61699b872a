//! A configuration's text, read as this binary reads it.

use conductor_config::{Code, Config, Diagnostic, Diagnostics, Examined, Known, Mark, Parsed};
use logging::LogFilterError;
use observability::error_chain;

use local_files::{ConfigSource, has_admin_key};
use policy_store::builtin;

/// Reads a configuration as this binary does.
///
/// # Errors
/// Every mistake.
pub(crate) fn read(source: &ConfigSource, text: &str) -> Result<Parsed, Diagnostics> {
    let parsed = Config::parse(&source.name(), text, &known(source, &builtin::names()))?;
    match log_level_problem(&parsed.config) {
        Some(problem) => Err(Diagnostics::new(&source.name(), text, vec![problem])),
        None => Ok(parsed),
    }
}

/// Returns the error of a log level that the filter refuses. The configuration leaves directives with spans to it.
pub(crate) fn log_level_problem(config: &Config) -> Option<Diagnostic> {
    let LogFilterError::Parse { directive, source } = logging::parse(&config.log.level).err()?;
    let at = config.log.level_at.clone().unwrap_or_else(Mark::beginning);
    let message = format!("`{directive}` is not a log level: {}", error_chain(&source));
    let help = "write LEVEL, TARGET=LEVEL or TARGET[SPAN{FIELD=VALUE}]=LEVEL, parted by commas";
    Some(Diagnostic::new(
        Code::InvalidValue,
        &at,
        message,
        Some(help.to_owned()),
    ))
}

/// Reads a configuration as far as it can be read, with its mistakes.
///
/// # Errors
/// A file that is too large to be read.
pub(crate) fn examine(source: &ConfigSource, text: &str) -> Result<Examined, Diagnostics> {
    Config::examine(&source.name(), text, &known(source, &builtin::names()))
}

fn known<'n>(source: &'n ConfigSource, builtins: &'n [&'n str]) -> Known<'n> {
    Known {
        builtins,
        former_builtins: builtin::FORMER_NAMES,
        default_policy: builtin::DEFAULT,
        files: source,
        has_admin_key: has_admin_key(),
    }
}
