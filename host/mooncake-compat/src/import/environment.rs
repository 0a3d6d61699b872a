//! Environment variables of the older conductors: their meaning here, or why they have none.

use std::ffi::OsString;
use std::path::PathBuf;

/// Tokens per block if `CONDUCTOR_BLOCK_SIZE` is not set.
const OLD_BLOCK_SIZE: u32 = 128;

/// Values of the variables. An empty one counts as not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacyEnvironment {
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

impl LegacyEnvironment {
    /// Reads the variables with a function such as `std::env::var_os`.
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

    /// Reads the variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name))
    }

    /// Returns a warning for each variable that is set but has no effect, because the configuration comes from
    /// elsewhere.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        let mut ignored = Vec::new();
        let mut warn = |name: &str, is_set: bool, instead: &str| {
            if is_set {
                ignored.push(format!("{name} is set and has no effect here: {instead}"));
            }
        };
        warn(
            "CONDUCTOR_CONFIG_PATH",
            self.config_path.is_some(),
            "the command line names a configuration",
        );
        warn(
            "CONDUCTOR_LOG_LEVEL",
            self.log_level.is_some(),
            "set `level` of [log]",
        );
        warn(
            "CONDUCTOR_BLOCK_SIZE",
            self.block_size.is_some(),
            "engines publish their block size with their events",
        );
        ignored.extend(self.meaningless());
        ignored
    }

    /// Returns the value for `[log] level`, if the variable holds a known level.
    pub(super) fn log_level(&self, warnings: &mut Vec<String>) -> Option<&'static str> {
        let value = self.log_level.as_deref()?;
        let levels = [
            ("debug", "debug"),
            ("info", "info"),
            ("warn", "warn"),
            ("error", "error"),
        ];
        let lower = value.to_ascii_lowercase();
        let found = levels.iter().find(|(old, _)| *old == lower).map(|(_, new)| *new);
        if found.is_none() {
            warnings.push(format!(
                "CONDUCTOR_LOG_LEVEL is `{value}`, none of DEBUG, INFO, WARN and ERROR: info is taken"
            ));
        }
        found
    }

    /// Returns the block size of services in the first shape.
    pub(super) fn block_size(&self, warnings: &mut Vec<String>) -> u32 {
        let Some(value) = self.block_size.as_deref() else {
            return OLD_BLOCK_SIZE;
        };
        let size = value.trim().parse().ok();
        size.filter(|size| (1..=1 << 20).contains(size))
            .unwrap_or_else(|| {
                warnings.push(format!(
                    "CONDUCTOR_BLOCK_SIZE is `{value}`, which is no block size: {OLD_BLOCK_SIZE} is taken"
                ));
                OLD_BLOCK_SIZE
            })
    }

    /// Adds warnings for the variables without an effect on the import.
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
