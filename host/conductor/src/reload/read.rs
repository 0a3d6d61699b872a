//! A configuration's text, read as this binary reads it.

use conductor_config::{Config, Diagnostics, Examined, Known, Parsed};

use local_files::{ConfigSource, has_admin_key};
use policy_store::builtin;

/// Reads a configuration as this binary does.
///
/// # Errors
/// Every mistake.
pub(crate) fn read(source: &ConfigSource, text: &str) -> Result<Parsed, Diagnostics> {
    Config::parse(&source.name(), text, &known(source, &builtin::names()))
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
