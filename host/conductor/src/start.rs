//! Choice of what `conductor` runs if the command line names nothing: the configuration of the working directory, or
//! the demo.

use std::path::{Path, PathBuf};

use mooncake_compat::import::LegacyEnvironment;

/// Name of the configuration in the working directory.
pub const CONFIG_FILE: &str = "conductor.toml";

/// Program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Configuration file.
    File(PathBuf),
    /// Configuration of an older conductor that the environment names.
    LegacyConfiguration,
    /// Demo.
    Demo,
}

impl Start {
    /// Returns the choice for this process.
    #[must_use]
    pub fn choose() -> Self {
        Self::choose_in(
            Path::new("."),
            LegacyEnvironment::of_process().config_path.is_some(),
        )
    }

    /// Returns the choice for a working directory. `CONDUCTOR_CONFIG_PATH` comes first: it was set on purpose.
    fn choose_in(folder: &Path, has_legacy_configuration: bool) -> Self {
        if has_legacy_configuration {
            return Self::LegacyConfiguration;
        }
        // A file that cannot be read is a mistake to report, not a reason to run something else.
        match folder.join(CONFIG_FILE).symlink_metadata() {
            Ok(_) => Self::File(CONFIG_FILE.into()),
            Err(_) => Self::Demo,
        }
    }

    /// Returns the choice and its reason, as text.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::File(file) => format!(
                "serving `{}`, which is in the working directory (`conductor demo` runs the demo)",
                file.display()
            ),
            Self::LegacyConfiguration => {
                "serving the old configuration that CONDUCTOR_CONFIG_PATH names".to_owned()
            }
            Self::Demo => format!(
                "running the demo: the working directory has no `{CONFIG_FILE}`, and neither --config nor --worker names what to serve"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_file_of_the_working_directory_is_served_and_the_demo_runs_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Start::choose_in(folder.path(), false), Start::Demo);
        std::fs::write(folder.path().join(CONFIG_FILE), "").unwrap();
        assert_eq!(
            Start::choose_in(folder.path(), false),
            Start::File(CONFIG_FILE.into())
        );
        assert_eq!(Start::choose_in(folder.path(), true), Start::LegacyConfiguration);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_reason_for_the_demo() {
        let folder = tempfile::tempdir().unwrap();
        symlink("nowhere", folder.path().join(CONFIG_FILE)).unwrap();
        assert_eq!(
            Start::choose_in(folder.path(), false),
            Start::File(CONFIG_FILE.into())
        );
    }
}
