//! Runs what compiles a project: its own `build.sh`, or cargo.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::SystemTime;

use serde::Deserialize;
use thiserror::Error;

/// What a project's script is called.
const SCRIPT: &str = "build.sh";
/// What Rust is compiled for where there is no script.
const TARGET: &str = "wasm32-unknown-unknown";

/// What a compiler left.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The file.
    pub(super) file: PathBuf,
    /// Where its component goes, if it is none itself.
    pub(super) component: PathBuf,
}

/// A project did not build.
#[derive(Debug, Error)]
pub(crate) enum CompileError {
    /// There is no way to.
    #[error(
        "failed to build `{}`: there is neither a build.sh nor a Cargo.toml; `conductor policy new` makes a project that builds",
        .0.display()
    )]
    NoProject(PathBuf),
    /// The program cannot be run.
    #[error("failed to run `{program}`; is it installed, and executable?")]
    Run {
        /// Which.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The program failed, and has said why.
    #[error("failed to build `{}`: `{program}` ended with {status}", folder.display())]
    Failed {
        /// The project.
        folder: PathBuf,
        /// Which program.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// It left nothing.
    #[error("failed to find what `{program}` built in `{}`: it leaves no .wasm file there", folder.display())]
    NoComponent {
        /// The project.
        folder: PathBuf,
        /// Which program.
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

/// Builds a project.
pub(super) fn compile(folder: &Path) -> Result<Compiled, CompileError> {
    if folder.join(SCRIPT).is_file() {
        return script(folder);
    }
    if folder.join("Cargo.toml").is_file() {
        return cargo(folder);
    }
    Err(CompileError::NoProject(folder.to_owned()))
}

fn script(folder: &Path) -> Result<Compiled, CompileError> {
    // A relative program would be looked for from either folder.
    let path = folder.join(SCRIPT);
    let path = path.canonicalize().unwrap_or(path);
    // Its words are for whoever watches: standard output is the report's.
    run(
        Command::new(&path).current_dir(folder).stdout(io::stderr()),
        SCRIPT,
        folder,
    )?;
    let file = newest_component(folder).ok_or_else(|| CompileError::NoComponent {
        folder: folder.to_owned(),
        program: SCRIPT.to_owned(),
    })?;
    Ok(Compiled {
        component: file.clone(),
        file,
    })
}

/// The file `*.wasm` of the folder that was written last.
fn newest_component(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .max_by_key(|path| {
            let written = fs::metadata(path).and_then(|metadata| metadata.modified());
            written.unwrap_or(SystemTime::UNIX_EPOCH)
        })
}

fn cargo(folder: &Path) -> Result<Compiled, CompileError> {
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
    let told = run(&mut command, "cargo build", folder)?;
    let module = module_told_of(&String::from_utf8_lossy(&told));
    let file = module.ok_or_else(|| CompileError::NotACdylib(folder.to_owned()))?;
    let name = file.file_name().unwrap_or_default();
    Ok(Compiled {
        component: folder.join(name.to_string_lossy().replace('_', "-")),
        file,
    })
}

/// The last module among the lines that cargo prints.
fn module_told_of(lines: &str) -> Option<PathBuf> {
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

/// Runs a program and hands back what it prints, unless that goes elsewhere.
fn run(command: &mut Command, program: &str, folder: &Path) -> Result<Vec<u8>, CompileError> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| CompileError::Run {
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

/// A line of cargo's that tells of something built.
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
    fn the_module_is_found_among_what_cargo_tells() {
        let told = concat!(
            r#"{"reason":"compiler-artifact","filenames":["/t/libdep.rlib"],"fresh":true}"#,
            "\n",
            r#"{"reason":"compiler-artifact","filenames":["/t/my_policy.wasm","/t/my_policy.d"]}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\nnot json\n",
        );
        assert_eq!(module_told_of(told), Some(PathBuf::from("/t/my_policy.wasm")));
        assert_eq!(module_told_of("{}"), None);
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
