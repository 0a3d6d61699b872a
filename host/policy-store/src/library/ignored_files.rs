//! Files of the policy folder that are not loaded, each logged once and listed on `/admin/policies`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conductor_config::ignored_file_fix;
use local_files::policy_folder::{misnamed_in, policies_in, precompiled_in};
use serde::Serialize;
use tracing::warn;

use crate::builtin;

/// File of the policy folder that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IgnoredFile {
    /// Path of the file.
    pub file: String,
    /// Reason, with a cure.
    pub why: String,
}

/// Files that are not loaded, with the reasons.
#[derive(Debug, Default)]
pub(super) struct IgnoredFiles(BTreeMap<PathBuf, String>);

impl IgnoredFiles {
    /// Looks for such files, and logs the new ones. `takes_file` returns true for policies that are configured with a
    /// file.
    pub(super) fn look(&mut self, folder: Option<&Path>, takes_file: impl Fn(&str) -> bool) {
        let found: BTreeMap<PathBuf, String> = folder
            .into_iter()
            .flat_map(|folder| ignored_in(folder, &takes_file))
            .collect();
        for (path, why) in &found {
            if self.0.get(path) != Some(why) {
                warn!(file = %path.display(), "a file of the policy folder is not loaded: {why}");
            }
        }
        self.0 = found;
    }

    /// Returns the files of the last look.
    pub(super) fn report(&self) -> Vec<IgnoredFile> {
        let report = |(path, why): (&PathBuf, &String)| IgnoredFile {
            file: path.display().to_string(),
            why: why.clone(),
        };
        self.0.iter().map(report).collect()
    }
}

fn ignored_in(folder: &Path, takes_file: impl Fn(&str) -> bool) -> Vec<(PathBuf, String)> {
    let precompiled = precompiled_in(folder).map(|path| {
        let why = "a precompiled policy is machine code that cannot be checked; put the .wasm component there that it was made from";
        (path, why.to_owned())
    });
    let misnamed = misnamed_in(folder).map(|path| {
        let why = "no policy can have its name; a name has letters, digits and any of -_. after the first";
        (path, why.to_owned())
    });
    let named_like_builtins = policies_in(folder).into_iter().filter_map(|(name, path)| {
        let is_ignored = builtin::find(&name).is_some() && !takes_file(&name);
        let why = || format!("`{name}` is a builtin; {}", ignored_file_fix(&name));
        is_ignored.then(|| (path, why()))
    });
    precompiled.chain(misnamed).chain(named_like_builtins).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_named_like_builtins_are_listed_with_the_fix_until_a_table_takes_them() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["mine.wasm", "round-robin.wasm", "a b.wasm", "old.cwasm"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let mut strays = IgnoredFiles::default();
        let names = |strays: &IgnoredFiles| -> Vec<String> {
            let files = strays.report().into_iter();
            files
                .map(|ignored| ignored.file.rsplit('/').next().unwrap().to_owned())
                .collect()
        };
        strays.look(Some(folder.path()), |_| false);
        assert_eq!(names(&strays), ["a b.wasm", "old.cwasm", "round-robin.wasm"]);
        assert!(strays.report()[2].why.contains("[policies.round-robin]"));
        strays.look(Some(folder.path()), |name| name == "round-robin");
        assert_eq!(names(&strays), ["a b.wasm", "old.cwasm"]);
        strays.look(None, |_| false);
        assert!(strays.report().is_empty());
    }
}
