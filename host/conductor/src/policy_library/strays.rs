//! Files of the policy folder that are never loaded, told of once each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::component::{misnamed_in, precompiled_in};

/// Those that were told of.
#[derive(Debug, Default)]
pub(super) struct Strays(BTreeSet<PathBuf>);

impl Strays {
    /// Warns of those that are new: machine code, and files that can be no policy's.
    pub(super) fn tell(&mut self, folder: Option<&Path>) {
        let mut found = BTreeSet::new();
        for path in folder.into_iter().flat_map(precompiled_in) {
            if !self.0.contains(&path) {
                warn!(
                    file = %path.display(),
                    "a precompiled policy is machine code that cannot be checked, and is not loaded: put the .wasm component there that \
                     it was made from"
                );
            }
            found.insert(path);
        }
        for path in folder.into_iter().flat_map(misnamed_in) {
            if !self.0.contains(&path) {
                warn!(
                    file = %path.display(),
                    "no policy can be called as this file is, and it is not loaded: a name has letters, digits and any of -_. after the \
                     first"
                );
            }
            found.insert(path);
        }
        self.0 = found;
    }
}
