//! `conductor policy build`: a project or a core module becomes a component, which is then checked.

mod compile;
mod program;

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use local_files::ReplaceError;
use policy_component::{ComponentError, Layer, componentise};
use serde::Serialize;
use thiserror::Error;

use self::compile::{CompileError, Compiled, compile};
use super::check::{CheckReport, check};
use super::component::{ComponentFile, replace_component};
use super::progress::StepProgress;
use super::{print, settings};
use crate::args::BuildArgs;
use crate::{Exit, UsageError};
use operator_tools::units::size;

/// No component could be built.
#[derive(Debug, Error)]
pub(crate) enum BuildPolicyError {
    /// The project does not build.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The built core module cannot be made a component.
    #[error("failed to build `{file}`")]
    Componentise {
        /// The core module.
        file: String,
        /// Error of the system.
        #[source]
        source: ComponentError,
    },
    /// The component cannot be written.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// Path of the destination.
        path: PathBuf,
        /// The failed step.
        #[source]
        source: ReplaceError,
    },
}

/// Builds and checks. The present component is replaced only if the check passes.
///
/// # Errors
/// Where there is nothing to build, it does not build, or what was built cannot be checked.
pub(super) fn run(args: &BuildArgs) -> anyhow::Result<Exit> {
    let compiled = if args.path.is_dir() {
        let progress = StepProgress::begin();
        compile(&args.path, args.install, &progress).map_err(BuildPolicyError::from)?
    } else {
        Compiled::file(&args.path)
    };
    let built = ComponentFile::read(&compiled.file).map_err(UsageError::new)?;
    let was_module = built.dissect()?.layer == Layer::Module;
    let bytes = if was_module {
        Cow::Owned(component_of(&built)?)
    } else {
        built.bytes
    };
    let made_of = was_module.then(|| compiled.file.display().to_string());
    let place = args.out.clone().unwrap_or(match was_module {
        true => compiled.component.clone(),
        false => compiled.place.clone(),
    });
    let subject = ComponentFile {
        label: place.display().to_string(),
        name: built.name,
        bytes,
    };
    let given = settings::read(&args.settings, &subject.name).map_err(UsageError::new)?;
    let check = check(&subject, given, &args.gate)?;
    let is_there = !was_module && place == compiled.file;
    let outcome = if !check.is_ok() {
        compiled.restore(&subject.bytes)?;
        Written::Refused
    } else if is_there {
        Written::There
    } else {
        write(&place, &subject.bytes)?;
        Written::New
    };
    let report = BuildReport {
        component: subject.label.clone(),
        bytes: subject.bytes.len(),
        outcome,
        from_core_module: made_of,
        check,
    };
    print(&report, args.json)?;
    Ok(report.check.exit())
}

fn component_of(module: &ComponentFile) -> Result<Vec<u8>, BuildPolicyError> {
    componentise(&module.bytes).map_err(|source| BuildPolicyError::Componentise {
        file: module.label.clone(),
        source,
    })
}

/// Writes a file whole or not at all: a router may be watching the place.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildPolicyError> {
    let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
    replace_component(path, bytes, found.as_ref()).map_err(|source| BuildPolicyError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Result of writing the component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Written {
    /// The component is in its place.
    New,
    /// The component was there already, and was only checked.
    There,
    /// The check failed. The former component was kept.
    Refused,
}

/// Report of the built component and of its check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct BuildReport {
    component: String,
    bytes: usize,
    outcome: Written,
    /// Core module from which the component was made, if any.
    from_core_module: Option<String>,
    check: CheckReport,
}

impl fmt::Display for BuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "built {}, {}", self.component, size(self.bytes))?;
        if let Some(module) = &self.from_core_module {
            write!(f, ", of the core module {module}")?;
        }
        write!(f, "\n\n{}", self.check)?;
        match self.outcome {
            Written::New => writeln!(f, "written to {}", self.component),
            Written::There => Ok(()),
            Written::Refused => writeln!(
                f,
                "not written: the check failed, and {} is as it was before",
                self.component
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_component_that_is_written_again_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.wasm");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, b"one").unwrap();
        assert_eq!(mode(), 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write(&path, b"two").unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap()), (0o600, b"two".to_vec()));
        let missing = write(&folder.path().join("none/mine.wasm"), b"three").unwrap_err();
        assert!(std::error::Error::source(&missing).is_some_and(|step| step.to_string().contains("create")));
    }
}
