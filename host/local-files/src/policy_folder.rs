//! Policy folder: its components, and files that are not loaded.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use conductor_config::check_policy_name;

/// Returns the `*.wasm` files by file stem, sorted, without those whose stem cannot name a policy. An unreadable folder
/// has none.
#[must_use]
pub fn policies_in(folder: &Path) -> Vec<(String, PathBuf)> {
    let components = components_in(folder);
    let mut found: Vec<_> = components
        .filter_map(|path| Some((policy_name(&path)?, path)))
        .collect();
    found.sort();
    found
}

/// Returns the other `*.wasm` files: their stem cannot name a policy.
pub fn misnamed_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    components_in(folder).filter(|path| policy_name(path).is_none())
}

/// Returns the name of a file's policy, if the stem can name one.
fn policy_name(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    check_policy_name(stem).ok()?;
    Some(stem.to_owned())
}

/// Returns the `*.wasm` files, without the hidden ones that editors and `cp` leave while they write.
fn components_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let is_hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"."))
    };
    files_in(folder, "wasm").filter(move |path| !is_hidden(path))
}

/// Most links that are followed to a file; the system's own limit.
const MOST_LINKS: usize = 40;

/// Returns true if a file is in the folder, by any path: also through links of which one is there.
///
/// Users who may write to the folder control the content of such a file.
#[must_use]
pub fn is_of_folder(path: &Path, folder: &Path) -> bool {
    let real = |folder: &Path| fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = real(folder);
    let parent = |path: &Path| path.parent().map(real);
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if parent(&path).as_ref() == Some(&folder) {
            return true;
        }
        match (fs::read_link(&path), path.parent()) {
            (Ok(link), Some(at)) => path = at.join(link),
            _ => return false,
        }
    }
    false
}

/// Returns the `*.cwasm` files: machine code, which cannot be checked.
pub fn precompiled_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    files_in(folder, "cwasm")
}

fn files_in(folder: &Path, extension: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let paths = entries.map(|entry| entry.path());
    paths.filter(move |path| path.extension().is_some_and(|found| found == extension) && path.is_file())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_whose_stem_cannot_name_a_policy_are_misnamed() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            "mine.wasm",
            "mine (shadow).wasm",
            "-x.wasm",
            "a b.wasm",
            ".mine.wasm.swp.wasm",
            "mine.txt",
        ];
        for file in files {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let names: Vec<_> = policies_in(folder.path())
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["mine"]);
        let mut misnamed: Vec<_> = misnamed_in(folder.path()).collect();
        misnamed.sort();
        let expected = ["-x.wasm", "a b.wasm", "mine (shadow).wasm"];
        assert_eq!(misnamed, expected.map(|file| folder.path().join(file)));
    }

    #[test]
    fn a_file_of_the_folder_is_recognised_by_any_path() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["policies", "elsewhere"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("policies/mine.wasm"), "").unwrap();
        fs::write(at("elsewhere/other.wasm"), "").unwrap();
        for (link, to) in [
            ("also", "policies"),
            ("elsewhere/in.wasm", "../policies/mine.wasm"),
            ("policies/out.wasm", "../elsewhere/other.wasm"),
            ("elsewhere/through.wasm", "../policies/out.wasm"),
            ("elsewhere/round.wasm", "round.wasm"),
        ] {
            symlink(to, at(link)).unwrap();
        }
        for (path, expected) in [
            ("policies/mine.wasm", true),
            ("policies/../policies/./mine.wasm", true),
            ("also/mine.wasm", true),
            ("also/not-yet.wasm", true),
            ("elsewhere/in.wasm", true),
            ("policies/out.wasm", true),
            ("elsewhere/through.wasm", true),
            ("elsewhere/other.wasm", false),
            ("elsewhere/round.wasm", false),
            ("policies.wasm", false),
        ] {
            assert_eq!(is_of_folder(&at(path), &at("policies")), expected, "{path}");
            assert_eq!(is_of_folder(&at(path), &at("also/.")), expected, "{path}");
        }
    }
}
