//! Parsed configurations for the tests.

use conductor_config::{Config, Known};
use local_files::{ConfigSource, has_admin_key};

/// Returns the configuration of a valid text.
#[track_caller]
pub(crate) fn parsed(source: &ConfigSource, text: &str) -> Config {
    let known = Known {
        builtins: &["ttft-queue"],
        former_builtins: &[],
        default_policy: "ttft-queue",
        files: source,
        has_admin_key: has_admin_key(),
    };
    let parsed = Config::parse(&source.name(), text, &known);
    parsed.expect("valid").config
}
