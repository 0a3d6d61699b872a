//! Runs what compiles a project: its own `build.sh`, or cargo.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::SystemTime;

use local_files::ReplaceError;
use serde::Deserialize;
use tempfile::TempDir;
use thiserror::Error;

use super::program::{self, ShownStreams};
use super::{BuildPolicyError, write};
use crate::policy::progress::StepProgress;

/// File name of a project's build script.
const SCRIPT: &str = "build.sh";
/// Names the folder that a script writes its component into; one that does not know of it writes beside itself.
const OUT_FOLDER: &str = "CONDUCTOR_OUT";
/// Lets a script install what it lacks.
const INSTALL: &str = "CONDUCTOR_INSTALL";
/// Rust target of projects without a script.
const TARGET: &str = "wasm32-unknown-unknown";

/// Output of a compiler.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The file.
    pub(super) file: PathBuf,
    /// Place of the output, if it is a component.
    pub(super) place: PathBuf,
    /// Place of its component, if the output is none itself.
    pub(super) component: PathBuf,
    /// The components of the project as they were before, where the compiler wrote over them.
    before: Option<Components>,
    /// The folder that it was compiled into, which is removed with this.
    _folder: Option<TempDir>,
}

/// Components of a folder by path.
type Components = BTreeMap<PathBuf, Vec<u8>>;

impl Compiled {
    /// Returns the component in a file that was compiled before.
    pub(super) fn file(path: &Path) -> Self {
        Self {
            file: path.to_owned(),
            place: path.to_owned(),
            component: path.with_extension("component.wasm"),
            before: None,
            _folder: None,
        }
    }

    /// Puts back the component that the compiler wrote over; the new bytes stay beside it as `NAME.wasm.refused`.
    pub(super) fn restore(&self, bytes: &[u8]) -> Result<(), BuildPolicyError> {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let refused = self.file.with_extension("wasm.refused");
        write(&refused, bytes)?;
        match before.get(&self.file) {
            Some(good) => write(&self.file, good),
            None => fs::remove_file(&self.file).map_err(|source| BuildPolicyError::Write {
                path: self.file.clone(),
                source: ReplaceError {
                    step: "remove",
                    path: self.file.clone(),
                    source,
                },
            }),
        }
    }
}

/// A project did not build.
#[derive(Debug, Error)]
pub(crate) enum CompileError {
    /// The project has no build method.
    #[error(
        "failed to build `{}`: there is neither a build.sh nor a Cargo.toml; `conductor policy new` makes a project that builds",
        .0.display()
    )]
    NoProject(PathBuf),
    /// The build folder could not be made.
    #[error("failed to make a temporary folder to build into")]
    Folder(#[source] io::Error),
    /// The program cannot be run.
    #[error("failed to run `{program}`; is it installed, and executable?")]
    Run {
        /// Path of the file.
        program: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The program failed, and has printed the reason.
    #[error("failed to build `{}`: `{program}` ended with {status}", folder.display())]
    Failed {
        /// The project.
        folder: PathBuf,
        /// Name of the program.
        program: String,
        /// Exit status.
        status: ExitStatus,
    },
    /// The compiler left no component.
    #[error("failed to find what `{program}` built in `{}`: it leaves no .wasm file there", folder.display())]
    NoComponent {
        /// The project.
        folder: PathBuf,
        /// Name of the program.
        program: String,
    },
    /// Rust cannot build for WebAssembly here.
    #[error(
        "failed to build `{}`: this Rust compiles nothing for {TARGET}; run `rustup target add {TARGET}`, or give the project a \
         build.sh as `conductor policy new --lang rust` does",
        .0.display()
    )]
    NoTarget(PathBuf),
    /// The package makes no module.
    #[error(
        "failed to find a module of the package in `{}`: add crate-type = [\"cdylib\"] to [lib] of its Cargo.toml",
        .0.display()
    )]
    NotACdylib(PathBuf),
}

/// Builds a project; with `install` its script may install what it lacks.
pub(super) fn compile(
    folder: &Path,
    install: bool,
    progress: &StepProgress,
) -> Result<Compiled, CompileError> {
    if folder.join(SCRIPT).is_file() {
        return script(folder, install, progress);
    }
    if folder.join("Cargo.toml").is_file() {
        return cargo(folder, progress);
    }
    Err(CompileError::NoProject(folder.to_owned()))
}

fn script(folder: &Path, install: bool, progress: &StepProgress) -> Result<Compiled, CompileError> {
    // A relative program would be looked for from either folder.
    let path = folder.join(SCRIPT);
    let path = path.canonicalize().unwrap_or(path);
    let fresh = tempfile::tempdir().map_err(CompileError::Folder)?;
    let before = components(folder);
    progress.part(&format!("{}: running {SCRIPT}", folder.display()));
    let mut command = Command::new(&path);
    command.current_dir(folder).env(OUT_FOLDER, fresh.path());
    if install {
        command.env(INSTALL, "1");
    }
    // All of the script's output goes to standard error, since standard output holds the report.
    let ran = program::run(command, ShownStreams::Everything, progress);
    let ran = check(ran, SCRIPT, folder);
    if ran.is_err() {
        put_back(folder, &before);
    }
    ran?;
    // A script that uses the folder leaves the component that is there alone.
    if let Some(file) = newest_component(fresh.path()) {
        let place = folder.join(file.file_name().unwrap_or_default());
        return Ok(Compiled {
            file,
            component: place.clone(),
            place,
            before: None,
            _folder: Some(fresh),
        });
    }
    let file = newest_component(folder).ok_or_else(|| CompileError::NoComponent {
        folder: folder.to_owned(),
        program: SCRIPT.to_owned(),
    })?;
    Ok(Compiled {
        component: file.clone(),
        place: file.clone(),
        file,
        before: Some(before),
        _folder: None,
    })
}

/// Returns the components of a folder. A file that cannot be read is left out.
fn components(folder: &Path) -> Components {
    let paths = wasm_files(folder);
    paths
        .filter_map(|path| fs::read(&path).ok().map(|bytes| (path, bytes)))
        .collect()
}

/// Undoes what a script that failed made of the components that were there.
fn put_back(folder: &Path, before: &Components) {
    for (path, bytes) in before {
        let is_same = fs::read(path).is_ok_and(|now| now == *bytes);
        if !is_same && let Err(error) = write(path, bytes) {
            eprintln!("{}: {error}", folder.display());
        }
    }
}

fn wasm_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
}

/// Returns the file `*.wasm` of the folder that was written last.
fn newest_component(folder: &Path) -> Option<PathBuf> {
    wasm_files(folder).max_by_key(|path| {
        let written = fs::metadata(path).and_then(|metadata| metadata.modified());
        written.unwrap_or(SystemTime::UNIX_EPOCH)
    })
}

fn cargo(folder: &Path, progress: &StepProgress) -> Result<Compiled, CompileError> {
    if !has_target(folder) {
        return Err(CompileError::NoTarget(folder.to_owned()));
    }
    let mut command = Command::new("cargo");
    command.current_dir(folder).args([
        "build",
        "--release",
        "--target",
        TARGET,
        "--message-format=json-render-diagnostics",
    ]);
    progress.part(&format!("{}: running cargo build", folder.display()));
    let ran = program::run(command, ShownStreams::Errors, progress);
    let messages = check(ran, "cargo build", folder)?;
    let module = built_module(&String::from_utf8_lossy(&messages));
    let file = module.ok_or_else(|| CompileError::NotACdylib(folder.to_owned()))?;
    let name = file.file_name().unwrap_or_default();
    let component = folder.join(name.to_string_lossy().replace('_', "-"));
    Ok(Compiled {
        place: component.clone(),
        component,
        file,
        before: None,
        _folder: None,
    })
}

/// Returns the last module among the lines that cargo prints.
fn built_module(lines: &str) -> Option<PathBuf> {
    lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter_map(Artifact::module)
        .next_back()
}

fn has_target(folder: &Path) -> bool {
    let mut command = Command::new("rustc");
    command
        .current_dir(folder)
        .args(["--print", "target-libdir", "--target", TARGET]);
    let library = command.output().ok().filter(|output| output.status.success());
    library.is_some_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// Returns what a program printed on its captured standard output, if it succeeded.
fn check(ran: io::Result<Output>, program: &str, folder: &Path) -> Result<Vec<u8>, CompileError> {
    let output = ran.map_err(|source| CompileError::Run {
        program: program.to_owned(),
        source,
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(CompileError::Failed {
        folder: folder.to_owned(),
        program: program.to_owned(),
        status: output.status,
    })
}

/// Message of cargo about an artifact that it built.
#[derive(Debug, Deserialize)]
struct Artifact {
    reason: String,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

impl Artifact {
    fn module(self) -> Option<PathBuf> {
        let mut files = self.filenames.into_iter();
        let module = files.find(|path| path.extension().is_some_and(|extension| extension == "wasm"));
        module.filter(|_| self.reason == "compiler-artifact")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_in_the_messages_of_cargo() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","filenames":["/t/libdep.rlib"],"fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","filenames":["/t/my_policy.wasm","/t/my_policy.d"]}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\nnot json\n",
        );
        assert_eq!(built_module(messages), Some(PathBuf::from("/t/my_policy.wasm")));
        assert_eq!(built_module("{}"), None);
    }

    #[test]
    fn the_newest_component_is_what_a_script_built() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, second: u64| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let written = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            file.set_modified(written).unwrap();
        };
        assert_eq!(newest_component(folder.path()), None);
        write("mine.wasm", 20);
        write("old.wasm", 10);
        write("notes.txt", 30);
        assert_eq!(
            newest_component(folder.path()),
            Some(folder.path().join("mine.wasm"))
        );
    }
}
