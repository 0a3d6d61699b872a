//! The repository's rules, as tests: see `tests/`. This library only finds the files.

pub mod commands;
pub mod idioms;
pub mod modules;
pub mod parameters;
pub mod paths;
pub mod prose;
pub mod settings;
pub mod types;

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("tests/tidy is two folders below the root")
        .to_owned()
}

/// A text file of the repository.
#[derive(Debug)]
pub struct SourceFile {
    /// Relative to the root, with forward slashes.
    pub path: String,
    /// Text.
    pub text: String,
}

impl SourceFile {
    /// Parses the Rust code.
    ///
    /// # Panics
    /// Where it does not parse: the compiler refuses it too.
    #[must_use]
    #[expect(clippy::panic, reason = "a rule without its input has no result")]
    pub fn parse(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }
}

/// Returns every file with one of these endings that is part of the project (built and hidden folders are not).
///
/// # Panics
/// Where the repository cannot be read: there is nothing to check then.
#[must_use]
pub fn files(extensions: &[&str]) -> Vec<SourceFile> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, extensions, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        !found.is_empty(),
        "no file ends in any of {extensions:?} below {}",
        root.display()
    );
    found
}

fn collect(root: &Path, folder: &Path, extensions: &[&str], found: &mut Vec<SourceFile>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository is readable");
    for path in entries.map(|entry| entry.expect("an entry of a readable folder").path()) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            let built = ["target", "node_modules", "__pycache__"].contains(&name);
            let hidden = name.starts_with('.') && name != ".ci";
            if !built && !hidden {
                collect(root, &path, extensions, found);
            }
        } else if extensions
            .iter()
            .any(|extension| path.extension().is_some_and(|own| own == *extension))
        {
            let relative = path
                .strip_prefix(root)
                .expect("below the root")
                .to_string_lossy()
                .replace('\\', "/");
            let text = fs::read_to_string(&path).expect("source files are UTF-8");
            found.push(SourceFile { path: relative, text });
        }
    }
}
