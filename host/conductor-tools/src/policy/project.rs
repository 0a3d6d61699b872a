//! `conductor policy new`: a folder with a small policy that builds.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use conductor_config::check_policy_name;
use policy_component::CONTRACT;
use policy_store::builtin;
use serde::Serialize;
use thiserror::Error;

use super::print;
use super::templates::{self, Template};
use crate::Exit;
use crate::args::NewArgs;

/// Folder of the contract in a project.
const CONTRACT_FILE: &str = "wit/policy.wit";
/// Folder of the SDK's sources in a project.
const SDK_SOURCES: &str = "sdk/src/";
/// File mode of a script.
const PROGRAM: u32 = 0o755;

/// No project could be made.
#[derive(Debug, Error)]
pub(crate) enum NewError {
    /// No policy can be called that.
    #[error("failed to name a policy: {0}")]
    Name(String),
    /// A policy could, but no package of a language.
    #[error(
        "failed to name a policy `{0}`: its name is that of a package too; use letters, digits and any of -_ after a first letter"
    )]
    PackageName(String),
    /// A builtin has the name.
    #[error(
        "failed to name a policy `{0}`: it is a builtin, which a file does not replace; choose another name"
    )]
    Builtin(String),
    /// The path exists already.
    #[error("failed to make the folder `{}`: it is there and not empty; name another one with --dir", .0.display())]
    Occupied(PathBuf),
    /// The path is no folder.
    #[error("failed to make the folder `{}`: a file of that name is there; name another one with --dir", .0.display())]
    NoFolder(PathBuf),
    /// The file system refuses.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// Makes a project.
///
/// # Errors
/// [`NewError`].
pub(super) fn run(args: &NewArgs) -> anyhow::Result<Exit> {
    check_name(&args.name)?;
    let folder = args.dir.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let template = templates::of(args.lang);
    let written = write(&folder, &args.name, template)?;
    let report = ProjectReport {
        name: args.name.clone(),
        language: template.language,
        folder: folder.display().to_string(),
        files: written,
    };
    print(&report, args.json)?;
    Ok(Exit::Success)
}

/// Checks that the name is a policy's name and no builtin's, and a package name in every language.
fn check_name(name: &str) -> Result<(), NewError> {
    check_policy_name(name).map_err(NewError::Name)?;
    if builtin::find(name).is_some() {
        return Err(NewError::Builtin(name.to_owned()));
    }
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains('.');
    if fits {
        Ok(())
    } else {
        Err(NewError::PackageName(name.to_owned()))
    }
}

/// Writes the project and names its files.
fn write(folder: &Path, name: &str, template: &Template) -> Result<Vec<String>, NewError> {
    let occupied = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(NewError::Occupied(folder.to_owned()));
    }
    // A link that leads nowhere is something too.
    if fs::symlink_metadata(folder).is_ok() && !folder.is_dir() {
        return Err(NewError::NoFolder(folder.to_owned()));
    }
    let mut files: Vec<(String, String)> = template
        .files
        .iter()
        .map(|(path, text)| (templates::renamed(path, name), templates::renamed(text, name)))
        .collect();
    let vendored = template.vendored.iter();
    files.extend(vendored.map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    files.push((CONTRACT_FILE.to_owned(), CONTRACT.to_owned()));
    for (path, text) in &files {
        write_file(&folder.join(path), text)?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

fn write_file(path: &Path, text: &str) -> Result<(), NewError> {
    let failed = |source| NewError::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)?;
    if path.extension().is_some_and(|extension| extension == "sh") {
        fs::set_permissions(path, fs::Permissions::from_mode(PROGRAM)).map_err(failed)?;
    }
    Ok(())
}

/// Report on the new project, with the next steps.
#[derive(Debug, Serialize)]
struct ProjectReport {
    name: String,
    language: &'static str,
    folder: String,
    files: Vec<String>,
}

impl fmt::Display for ProjectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            language,
            folder,
            files,
        } = self;
        writeln!(f, "a policy in {language}, in {folder}:")?;
        let is_vendored = |file: &&String| file.starts_with(SDK_SOURCES);
        for file in files.iter().filter(|file| !is_vendored(file)) {
            writeln!(f, "    {file}")?;
        }
        if files.iter().any(|file| is_vendored(&file)) {
            writeln!(f, "    {SDK_SOURCES}  (the SDK)")?;
        }
        writeln!(f, "\nnext:")?;
        let steps = [
            (
                format!("conductor policy build {folder}"),
                format!("builds {name}.wasm there and checks it"),
            ),
            (
                format!("conductor policy bench {folder}/{name}.wasm"),
                "the cost of a decision".to_owned(),
            ),
            (
                format!("cp {folder}/{name}.wasm POLICY-DIR/"),
                "`policy-dir` of conductor.toml: a running router loads it from there".to_owned(),
            ),
        ];
        let width = steps.iter().map(|(step, _)| step.len()).max().unwrap_or(0);
        for (step, what) in steps {
            writeln!(f, "    {step:width$}  # {what}")?;
        }
        writeln!(
            f,
            "\nthen name it in a route: shadow = [\"{name}\"] to record its decisions without effect, policy = \"{name}\" to have it decide"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_of_a_policy_and_of_a_package() {
        assert!(check_name("my-policy_2").is_ok());
        assert!(matches!(check_name("a b"), Err(NewError::Name(_))));
        assert!(matches!(check_name("2nd"), Err(NewError::PackageName(_))));
        assert!(matches!(check_name("a.b"), Err(NewError::PackageName(_))));
    }

    #[test]
    fn a_name_of_a_builtin_is_refused_since_its_file_would_be_ignored() {
        let refused = check_name("round-robin").unwrap_err();
        assert!(matches!(refused, NewError::Builtin(_)), "{refused}");
    }
}
