//! Facts from outside the file: builtin policies, files in policy folders, the environment.

use std::fmt;
use std::path::Path;

/// Names and facts from outside the file.
#[derive(Debug, Clone, Copy)]
pub struct Known<'n> {
    /// Names of the builtin policies.
    pub builtins: &'n [&'n str],
    /// Former names of builtin policies, with the names that replaced them.
    pub former_builtins: &'n [(&'n str, &'n str)],
    /// Policy of routes that name none: one of `builtins`.
    pub default_policy: &'n str,
    /// Access to the policy folder.
    pub files: &'n dyn PolicyFiles,
    /// The environment has an admin key, for a file without one.
    pub has_admin_key: bool,
}

impl<'n> Known<'n> {
    /// Returns a builtin policy's former name with its current one.
    pub(crate) fn renamed_builtin(&self, name: &str) -> Option<(&'n str, &'n str)> {
        let mut renamed = self.former_builtins.iter();
        renamed.find(|(former, _)| *former == name).copied()
    }
}

/// Access to policy folders, so that this crate needs no file system.
pub trait PolicyFiles: fmt::Debug {
    /// Returns the names (file stems) of the components in `folder`, which is as written: maybe relative to the file.
    fn names_in(&self, folder: &Path) -> Vec<String>;

    /// Returns `true` if the folder does not exist.
    fn is_missing(&self, folder: &Path) -> bool {
        let _ = folder;
        false
    }

    /// Returns the reason why an existing folder cannot be read.
    fn unreadable(&self, folder: &Path) -> Option<String> {
        let _ = folder;
        None
    }

    /// Returns `true` if `path` exists and is not a folder.
    fn is_no_folder(&self, path: &Path) -> bool {
        let _ = path;
        false
    }
}

/// The same files in every folder, for tests.
impl<const N: usize> PolicyFiles for [&str; N] {
    fn names_in(&self, _: &Path) -> Vec<String> {
        self.map(str::to_owned).to_vec()
    }

    /// Derived from the folder's name.
    fn is_missing(&self, folder: &Path) -> bool {
        folder.ends_with("missing")
    }

    /// Derived from the folder's name.
    fn unreadable(&self, folder: &Path) -> Option<String> {
        folder.ends_with("closed").then(|| "permission denied".to_owned())
    }

    /// Derived from the file's name.
    fn is_no_folder(&self, path: &Path) -> bool {
        path.extension().is_some()
    }
}
