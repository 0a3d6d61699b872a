//! The old conductors' environment variables: what each means here, or why it means nothing.

use std::ffi::OsString;
use std::path::PathBuf;

/// Tokens a block where `CONDUCTOR_BLOCK_SIZE` was not set.
const OLD_BLOCK_SIZE: u32 = 128;

/// The variables as found; empty ones count as not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldEnvironment {
    /// `CONDUCTOR_CONFIG_PATH`.
    pub config_path: Option<PathBuf>,
    /// `CONDUCTOR_LOG_LEVEL`.
    pub log_level: Option<String>,
    /// `CONDUCTOR_BLOCK_SIZE`.
    pub block_size: Option<String>,
    /// `CONDUCTOR_SEED`.
    pub seed: Option<String>,
    /// `NONE_HASH`.
    pub none_hash: Option<String>,
}

impl OldEnvironment {
    /// Reads them by `variable`, such as `std::env::var_os`.
    #[must_use]
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| set(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            config_path: set("CONDUCTOR_CONFIG_PATH").map(PathBuf::from),
            log_level: text("CONDUCTOR_LOG_LEVEL"),
            block_size: text("CONDUCTOR_BLOCK_SIZE"),
            seed: text("CONDUCTOR_SEED"),
            none_hash: text("NONE_HASH"),
        }
    }

    /// That of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// What to say where a configuration was given by other means: none of the variables has an effect then.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        let mut ignored = Vec::new();
        let mut tell = |name: &str, is_set: bool, instead: &str| {
            if is_set {
                ignored.push(format!("{name} is set and has no effect here: {instead}"));
            }
        };
        tell(
            "CONDUCTOR_CONFIG_PATH",
            self.config_path.is_some(),
            "the command line names a configuration",
        );
        tell(
            "CONDUCTOR_LOG_LEVEL",
            self.log_level.is_some(),
            "set `level` of [log]",
        );
        tell(
            "CONDUCTOR_BLOCK_SIZE",
            self.block_size.is_some(),
            "engines tell their block size with their events",
        );
        ignored.extend(self.meaningless());
        ignored
    }

    /// The `[log] level`, where one was asked for that exists.
    pub(super) fn log_level(&self, warnings: &mut Vec<String>) -> Option<&'static str> {
        let asked = self.log_level.as_deref()?;
        let levels = [
            ("debug", "debug"),
            ("info", "info"),
            ("warn", "warn"),
            ("error", "error"),
        ];
        let lower = asked.to_ascii_lowercase();
        let found = levels.iter().find(|(old, _)| *old == lower).map(|(_, new)| *new);
        if found.is_none() {
            warnings.push(format!(
                "CONDUCTOR_LOG_LEVEL is `{asked}`, none of DEBUG, INFO, WARN and ERROR: info is taken"
            ));
        }
        found
    }

    /// The block size of services of the oldest shape.
    pub(super) fn block_size(&self, warnings: &mut Vec<String>) -> u32 {
        let Some(asked) = self.block_size.as_deref() else {
            return OLD_BLOCK_SIZE;
        };
        let size = asked.trim().parse().ok();
        size.filter(|size| (1..=1 << 20).contains(size))
            .unwrap_or_else(|| {
                warnings.push(format!(
                    "CONDUCTOR_BLOCK_SIZE is `{asked}`, which is no block size: {OLD_BLOCK_SIZE} is taken"
                ));
                OLD_BLOCK_SIZE
            })
    }

    /// Tells what had no effect on an import.
    pub(super) fn explain_rest(&self, used_block_size: bool, warnings: &mut Vec<String>) {
        if self.block_size.is_some() && !used_block_size {
            warnings.push(
                "CONDUCTOR_BLOCK_SIZE has no effect: every service has a block size of its own".to_owned(),
            );
        }
        warnings.extend(self.meaningless());
    }

    fn meaningless(&self) -> impl Iterator<Item = String> {
        let seed = self.seed.as_ref().map(|_| {
            "CONDUCTOR_SEED has no effect: the index needs no seed of its own, it learns prefixes from the tokens in \
             the engines' events"
        });
        let none_hash = self.none_hash.as_ref().map(|_| {
            "NONE_HASH has no effect: the root of an engine's hashes follows from its PYTHONHASHSEED, which is given as \
             `python-hash-seed` of [[indexer.services]] or in `hash_profile` of POST /register"
        });
        seed.into_iter().chain(none_hash).map(str::to_owned)
    }
}
