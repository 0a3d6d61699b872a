//! Source paths that comments and the architecture page name in backticks, such as `src/paths.rs` and `tests/`.

use std::path::{Component, Path, PathBuf};

use crate::prose::markdown_lines;
use crate::{SourceFile, root};

/// Returns the code spans of a line.
pub fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the path without `.` and `..`.
#[must_use]
pub fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

/// Returns the named source files and folders that a Rust file's comments name and that do not exist, with their
/// lines, and the number of checked names.
///
/// A name is relative to the comment's folder or its parent, to the folder of the file's submodules, to the crate or
/// its `src`, or to the repository.
#[must_use]
pub fn missing_in_comments(file: &SourceFile) -> (Vec<String>, usize) {
    let path = Path::new(&file.path);
    let folder = path.parent().unwrap_or(Path::new(""));
    let parent = folder.parent().unwrap_or(Path::new(""));
    let has_manifest = |folder: &&Path| root().join(folder).join("Cargo.toml").exists();
    let of_crate = folder.ancestors().find(has_manifest).unwrap_or(folder);
    let bases = [
        folder.to_owned(),
        parent.to_owned(),
        path.with_extension(""),
        of_crate.to_owned(),
        of_crate.join("src"),
        PathBuf::new(),
        PathBuf::from("host"),
    ];
    let (mut missing, mut checked) = (Vec::new(), 0);
    for (at, line) in file.text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
        for name in code_spans(comment).flat_map(source_paths) {
            checked += 1;
            if find(&name, &bases).is_none() {
                missing.push(format!("{}:{}: {name}", file.path, at + 1));
            }
        }
    }
    (missing, checked)
}

/// Returns the named source files and folders that the architecture page names and that do not exist, with their lines,
/// and the number of checked names.
///
/// A name is relative to the repository, to `host/` or `host/proxy/src/`, or to a folder that the same section has
/// named before, also as the folder or crate of a file.
#[must_use]
pub fn missing_in_architecture(page: &SourceFile) -> (Vec<String>, usize) {
    let bases = ["", "host", "host/proxy/src"].map(PathBuf::from);
    let mut nearby = bases.to_vec();
    let (mut missing, mut checked) = (Vec::new(), 0);
    for (number, line) in markdown_lines(&page.text) {
        if line.starts_with('#') {
            nearby = bases.to_vec();
        }
        for name in code_spans(line).flat_map(source_paths) {
            checked += 1;
            let Some(found) = find(&name, &nearby) else {
                missing.push(format!("{}:{number}: {name}", page.path));
                continue;
            };
            let sources = found.ancestors().find(|folder| folder.ends_with("src"));
            nearby.extend(sources.map(Path::to_owned));
            if name.ends_with('/') {
                nearby.push(found);
            } else {
                nearby.extend(found.parent().map(Path::to_owned));
            }
        }
    }
    (missing, checked)
}

/// Returns the first of these folders' paths of that name that exists, relative to the repository.
fn find(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let mut paths = folders.iter().map(|folder| normal(&folder.join(name)));
    paths.find(|path| root().join(path).exists())
}

/// Returns the source files and folders that a code span names: none if it is other code, several if it has braces.
fn source_paths(span: &str) -> Vec<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    let is_path = (span.ends_with(".rs") || span.ends_with('/'))
        && !span.starts_with('/')
        // Any folder module's file.
        && span != "mod.rs"
        && span.chars().all(is_plain);
    if !is_path {
        return Vec::new();
    }
    match span.split_once('{') {
        Some((before, rest)) => {
            let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
            names
                .split(',')
                .map(|name| format!("{before}{name}{after}"))
                .collect()
        }
        None => vec![span.to_owned()],
    }
}
